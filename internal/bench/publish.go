package bench

import (
	"context"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/relay/infrai"
)

// measurePublish compares the relay, one request per message, order and durable
// marks on, with Go's HTTP client and server alone.
func measurePublish(ctx context.Context, r *rig) ([]Result, error) {
	if err := r.fill(ctx, r.cfg.Messages); err != nil {
		return nil, err
	}
	sink, err := startChild(ctx, nil, true, "bench", "sink")
	if err != nil {
		return nil, err
	}
	defer sink.stop()
	emulator, err := startChild(ctx, nil, true, "bench", "emulator")
	if err != nil {
		return nil, err
	}
	defer emulator.stop()

	var limit, few, many, toEmulator, fewRatio, manyRatio figures
	for run := range r.cfg.Runs {
		alone, err := bestAlone(ctx, sink.line, r.filled)
		if err != nil {
			return nil, err
		}
		withFew, err := r.publishTo(ctx, sink.line, fewInFlight)
		if err != nil {
			return nil, err
		}
		withMany, err := r.publishTo(ctx, sink.line, 0)
		if err != nil {
			return nil, err
		}
		emulated, err := r.publishTo(ctx, emulator.line, fewInFlight)
		if err != nil {
			return nil, err
		}
		limit, few, many, toEmulator = append(limit, alone), append(few, withFew), append(many, withMany), append(toEmulator, emulated)
		fewRatio, manyRatio = append(fewRatio, withFew/alone), append(manyRatio, withMany/alone)
		r.say("publish %d/%d: HTTP alone %.0f/s, relay %.0f/s with %d in flight, %.0f/s with the default; to the emulator %.0f/s",
			run+1, r.cfg.Runs, alone, withFew, fewInFlight, withMany, emulated)
	}
	return []Result{
		limit.result("publish.http", "Go's HTTP client and server alone, the best of 16, 64 and 256 in flight", "requests/s"),
		few.result("publish.relay_32", "relay to the same server, order and durable marks, 32 in flight", "messages/s"),
		fewRatio.result("publish.ratio_32", "relay, 32 in flight / HTTP alone", "ratio").atLeast(0.7),
		many.result("publish.relay", "the same with the default of 256 in flight", "messages/s"),
		manyRatio.result("publish.ratio", "relay, 256 in flight / HTTP alone", "ratio").atLeast(0.7),
		toEmulator.result("publish.emulator", "relay to the emulator, 32 in flight", "messages/s"),
	}, nil
}

// fewInFlight suits a sink that answers within a millisecond: more requests at
// once only make two cores wait for each other.
const fewInFlight = 32

// bestAlone is the best of a few numbers of workers: the limit must not be low
// because the number was a bad one.
func bestAlone(ctx context.Context, url string, requests int) (best float64, err error) {
	for _, workers := range []int{16, 64, 256} {
		took, err := httpAlone(ctx, url, workers, requests/3)
		if err != nil {
			return 0, err
		}
		best = max(best, float64(requests/3)/took.Seconds())
	}
	return best, nil
}

// publishTo drains the backlog to an endpoint and returns messages per second.
func (r *rig) publishTo(ctx context.Context, url string, inFlight int) (float64, error) {
	return r.onCopy(ctx, func(ctx context.Context, slot string) (time.Duration, error) {
		env := map[string]string{"INFRAI_BASE_URL": url}
		if inFlight > 0 {
			env["RELAY_MAX_IN_FLIGHT"] = strconv.Itoa(inFlight)
			env["RELAY_MAX_IN_FLIGHT_PER_QUEUE"] = strconv.Itoa(inFlight)
		}
		cfg, err := r.settings(ctx, slot, env)
		if err != nil {
			return 0, err
		}
		publisher, err := infrai.New(cfg.Infrai, zap.NewNop())
		if err != nil {
			return 0, err
		}
		defer publisher.Close()
		counted := newCounter(publisher, r.filled)
		return r.drain(ctx, cfg, counted, counted)
	})
}

// delays are the numbers of requests in flight that are tried against a sink
// that takes its time.
var delays = []int{32, 128, 256}

// sinkDelay is how long that sink takes.
const sinkDelay = 20 * time.Millisecond

// measureDelay compares the relay with the HTTP client alone when every request
// takes 20 ms, with the same number in flight.
func measureDelay(ctx context.Context, r *rig) ([]Result, error) {
	if err := r.fillUnordered(ctx, min(r.cfg.Messages, 20_000)); err != nil {
		return nil, err
	}
	sink, err := startChild(ctx, nil, true, "bench", "sink", "--delay", sinkDelay.String())
	if err != nil {
		return nil, err
	}
	defer sink.stop()
	var results []Result
	for _, inFlight := range delays {
		var limit, ours, ratio figures
		for run := range r.cfg.Runs {
			took, err := httpAlone(ctx, sink.line, inFlight, r.filled)
			if err != nil {
				return nil, err
			}
			alone := float64(r.filled) / took.Seconds()
			rate, err := r.publishTo(ctx, sink.line, inFlight)
			if err != nil {
				return nil, err
			}
			limit, ours, ratio = append(limit, alone), append(ours, rate), append(ratio, rate/alone)
			r.say("delay, %d in flight, %d/%d: HTTP alone %.0f/s, relay %.0f/s", inFlight, run+1, r.cfg.Runs, alone, rate)
		}
		n := strconv.Itoa(inFlight)
		results = append(results,
			limit.result("delay.http."+n, "HTTP client alone, 20 ms a request, "+n+" in flight", "requests/s"),
			ours.result("delay.relay."+n, "relay, the same", "messages/s"),
			ratio.result("delay.ratio."+n, "relay / HTTP alone", "ratio").atLeast(0.9))
	}
	return results, nil
}
