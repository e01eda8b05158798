package scenario_test

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// pauses are the waits that the relay announced.
func pauses(r *scenario.Relay) (waits []time.Duration) {
	for _, line := range r.Logs().FilterMessage("sending paused").All() {
		waits = append(waits, line.ContextMap()["wait"].(time.Duration))
	}
	return waits
}

// awaitPauses waits until the relay has announced n waits.
func awaitPauses(t *testing.T, r *scenario.Relay, n int) {
	t.Helper()
	pgtest.Eventually(t, scenario.Patience, func() error {
		if got := len(pauses(r)); got < n {
			return fmt.Errorf("%d pauses, want %d", got, n)
		}
		return nil
	})
}

// HTTP-01: Retry-After in every form. A 429 pauses all messages of the endpoint
// for as long as it asks; what is past or no sense is the usual short wait.
func TestHTTP01_RetryAfter(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(quick)
	r := w.Start()
	r.AwaitLog("session began")
	const soon = 200 * time.Millisecond // RELAY_PROBE_MAX
	tests := []struct {
		value       string
		header      []string
		least, most time.Duration
		until       time.Duration // in whole seconds; what is left of it when the answer arrives is the pause
	}{
		{value: "1", least: time.Second, most: 1100 * time.Millisecond},
		{value: "0.7", least: 700 * time.Millisecond, most: 770 * time.Millisecond},
		{value: "imf+2s", until: 2 * time.Second, most: 2200 * time.Millisecond},
		{value: "rfc850+2s", until: 2 * time.Second, most: 2200 * time.Millisecond},
		{value: "asctime+2s", until: 2 * time.Second, most: 2200 * time.Millisecond},
		{header: []string{"0.2", "1"}, least: time.Second, most: 1100 * time.Millisecond},
		{value: "imf-10s", most: soon},
		{value: "0", most: soon},
		{value: "abc", most: soon},
		{value: "-3", most: soon},
		{header: []string{""}, most: soon},
	}
	for i, test := range tests {
		name := fmt.Sprintf("%q%q", test.value, test.header)
		asked, other := fmt.Sprintf("asked-%d", i), fmt.Sprintf("other-%d", i)
		w.Fault(emulator.Fault{
			Key: asked, Count: 1, Status: http.StatusTooManyRequests,
			RetryAfter: test.value, Header: http.Header{"Retry-After": test.header},
		})
		w.Insert(scenario.Message{Key: asked})
		awaitPauses(t, r, i+1)
		w.Insert(scenario.Message{Key: other})
		w.AwaitAccepted()
		if wait := pauses(r)[i]; wait < test.least || wait > test.most {
			t.Errorf("%s: the pause is %s, want %s to %s", name, wait, test.least, test.most)
		}
		first := arrivals(w, asked)
		if len(first) != 2 {
			t.Fatalf("%s: %d requests, want 2", name, len(first))
		}
		earliest := first[0].Add(test.least)
		if test.until > 0 {
			earliest = first[0].Add(test.until).Truncate(time.Second)
		}
		for _, next := range []time.Time{first[1], arrivals(w, other)[0]} {
			if next.Before(earliest) {
				t.Errorf("%s: the next request came after %s, %s too early", name, next.Sub(first[0]), earliest.Sub(next))
			}
		}
	}
	w.Settle()
	noDeadLetters(t, w)
}

// HTTP-01: a 503 says when its message may come again. It pauses no other.
func TestHTTP01_RetryAfterOfOneMessage(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(quick)
	w.Fault(emulator.Fault{Key: "asked", Count: 1, Status: http.StatusServiceUnavailable, RetryAfter: "3"})
	w.Start()
	// In one transaction: they come to the relay together.
	w.Commit(w.Conn, scenario.Message{Key: "asked", OrderingKey: "a"}, scenario.Message{Key: "behind", OrderingKey: "a"}, scenario.Message{Key: "other"})
	w.Settle()
	times := arrivals(w, "asked")
	if len(times) != 2 || times[1].Sub(times[0]) < 3*time.Second {
		t.Fatalf("requests came at %v, want two and three seconds between them", times)
	}
	if other := arrivals(w, "other")[0]; other.After(times[1]) {
		t.Error("a message of no lane waited for another one's pause")
	}
}

// HTTP-02: an absurd Retry-After is cut, and never becomes no wait at all.
func TestHTTP02_AbsurdRetryAfter(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(quick).With(map[string]string{"INFRAI_MAX_RETRY_AFTER": "500ms"})
	r := w.Start()
	for i, value := range []string{"86400", "9999999999", "99999999999999999999", "imf+438000h"} {
		key := fmt.Sprintf("m-%d", i)
		w.Fault(emulator.Fault{Key: key, Count: 1, Status: http.StatusTooManyRequests, RetryAfter: value})
		w.Insert(scenario.Message{Key: key})
		w.AwaitAccepted()
		if wait := pauses(r)[i]; wait < 500*time.Millisecond || wait > 550*time.Millisecond {
			t.Errorf("%s: the pause is %s, want about 500ms", value, wait)
		}
		if times := arrivals(w, key); len(times) != 2 || times[1].Sub(times[0]) < 500*time.Millisecond {
			t.Errorf("%s: requests came at %v, want two and half a second between them", value, times)
		}
	}
	w.Settle()
}

// HTTP-02: a stop does not wait for the end of a long pause.
func TestHTTP02_StopDuringALongPause(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	w.Fault(emulator.Fault{Route: "queue.publish", Status: http.StatusTooManyRequests, RetryAfter: "86400"})
	w.Insert(scenario.Batch("m", 20, "a", "")...)
	p := process(t, w, nil)
	line := p.AwaitLog(t, "sending paused")
	if wait, _ := time.ParseDuration(line.Fields["wait"].(string)); wait < 5*time.Minute || wait > 6*time.Minute {
		t.Errorf("the pause is %s, want about five minutes", line.Fields["wait"])
	}
	began := time.Now()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.AwaitExit(t, 0)
	// Nothing is in flight: the drain timeout of 25 s is not for this.
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the stop took %s", took)
	}
	w.Queue.ClearFaults()
	process(t, w, nil)
	w.Settle()
}
