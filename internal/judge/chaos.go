package judge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/netfault"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// between is a random time.
func between(dice *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(dice.Int64N(int64(most-least)))
}

// mood is what differs between runs: one that is always behind shows other
// mistakes than one that mostly keeps up.
type mood struct {
	faults  float64       // factor for the faults of single requests
	limited float64       // share of requests that are told to come later: each one pauses the queue
	pause   time.Duration // the longest of a writer between two transactions
	calm    float64       // factor for the time between two outages
}

func newMood(seed uint64) mood {
	dice := rand.New(rand.NewPCG(seed, 5))
	return mood{
		faults:  []float64{0.1, 0.5, 1}[dice.IntN(3)],
		limited: []float64{0.0005, 0.005, 0.05}[dice.IntN(3)],
		pause:   []time.Duration{600 * time.Millisecond, 1500 * time.Millisecond, 5 * time.Second}[dice.IntN(3)],
		calm:    []float64{0.5, 1, 2}[dice.IntN(3)],
	}
}

// hurt does one thing after the other to a part, until ctx ends.
func (r *run) hurt(ctx context.Context, part uint64, least, most time.Duration, acts []act) {
	dice := rand.New(rand.NewPCG(r.cfg.Seed, part))
	for wait(ctx, time.Duration(r.mood.calm*float64(between(dice, least, most)))) {
		acts[dice.IntN(len(acts))](ctx, dice)
	}
}

// act does something bad and makes it good again.
type act func(context.Context, *rand.Rand)

// hurtRelays kills and stops relays.
func (r *run) hurtRelays(ctx context.Context) {
	again := func(ctx context.Context, dice *rand.Rand, place int) {
		wait(ctx, between(dice, 0, 2*time.Second))
		if err := r.relays.start(place); err != nil {
			r.report.violate("judge", "%v", err)
		}
	}
	kill := func(ctx context.Context, dice *rand.Rand) {
		place := dice.IntN(2)
		r.report.fault("relay killed", fmt.Sprintf("place %d", place))
		r.relays.kill(place)
		again(ctx, dice, place)
	}
	stop := func(ctx context.Context, dice *rand.Rand) {
		place := dice.IntN(2)
		r.report.fault("relay stopped", fmt.Sprintf("place %d", place))
		r.relays.stop(ctx, place)
		again(ctx, dice, place)
	}
	freeze := func(ctx context.Context, dice *rand.Rand) {
		place, d := dice.IntN(2), between(dice, time.Second, 25*time.Second)
		r.report.fault("relay frozen", fmt.Sprintf("place %d for %v", place, d))
		_ = r.relays.at(place).Signal(syscall.SIGSTOP)
		wait(ctx, d)
		_ = r.relays.at(place).Signal(syscall.SIGCONT)
	}
	both := func(ctx context.Context, dice *rand.Rand) {
		r.report.fault("both relays killed", "")
		r.relays.kill(0)
		r.relays.kill(1)
		again(ctx, dice, 0)
		again(ctx, dice, 1)
	}
	r.hurt(ctx, 1, 3*time.Second, 12*time.Second, []act{kill, kill, stop, stop, both, freeze, freeze})
}

// hurtDatabase breaks the server and the relays' connections to it.
func (r *run) hurtDatabase(ctx context.Context) {
	restart := func(mode string) act {
		return func(context.Context, *rand.Rand) {
			r.report.fault("server restarted, "+mode, "")
			if err := r.cluster.Restart(mode); err != nil {
				r.report.violate("judge", "restart: %v", err)
			}
		}
	}
	terminate := func(ctx context.Context, _ *rand.Rand) {
		r.report.fault("backends terminated", "")
		conn, err := pgx.Connect(ctx, r.url)
		if err != nil {
			return
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		_, _ = conn.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and application_name <> $1 and pid <> pg_backend_pid()`, applicationName)
	}
	drop := func(ctx context.Context, _ *rand.Rand) {
		r.report.fault("slot dropped", r.dropSlot(ctx))
	}
	acts := append(r.network("database", r.databaseProxy), terminate, terminate, restart("immediate"), restart("fast"), drop, drop)
	r.hurt(ctx, 2, 3*time.Second, 10*time.Second, acts)
}

// dropSlot drops the slot under the relay that holds it, and says how that went.
func (r *run) dropSlot(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, r.url)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for {
		_, err := conn.Exec(ctx, `select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = $1`, slot)
		if err == nil {
			_, err = conn.Exec(ctx, `select pg_drop_replication_slot($1)`, slot)
		}
		if err == nil || !wait(ctx, time.Millisecond) {
			return fmt.Sprint(err)
		}
	}
}

// pause stops a queue as an operator does, and lets it go on.
func (r *run) pause(ctx context.Context, dice *rand.Rand) {
	queue := queues[dice.IntN(len(queues))]
	r.report.fault("queue paused", queue)
	r.setPaused(ctx, queue, true)
	wait(ctx, between(dice, time.Second, 8*time.Second))
	r.setPaused(context.WithoutCancel(ctx), queue, false)
}

// setPaused tries until the server is there.
func (r *run) setPaused(ctx context.Context, queue string, paused bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, r.url)
		if err == nil {
			_, err = conn.Exec(ctx, `insert into outbox.queues (queue, paused) values ($1, $2)
				on conflict (queue) do update set paused = excluded.paused`, queue, paused)
			_ = conn.Close(ctx)
		}
		if err == nil || !wait(ctx, reconnectPause) {
			return
		}
	}
}

// network is what can happen to connections.
func (r *run) network(name string, proxy *netfault.Proxy) []act {
	return []act{
		func(ctx context.Context, dice *rand.Rand) {
			d := between(dice, time.Second, 17*time.Second)
			r.report.fault(name+" frozen", d.String())
			proxy.Freeze()
			wait(ctx, d)
			proxy.Thaw()
		},
		func(ctx context.Context, dice *rand.Rand) {
			r.report.fault(name+" slow", "")
			proxy.Delay(between(dice, time.Millisecond, 60*time.Millisecond))
			wait(ctx, between(dice, time.Second, 5*time.Second))
			proxy.Delay(0)
		},
		func(ctx context.Context, dice *rand.Rand) {
			r.report.fault(name+" refused", "")
			proxy.Refuse(true)
			proxy.Reset()
			wait(ctx, between(dice, 100*time.Millisecond, 5*time.Second))
			proxy.Refuse(false)
		},
		func(context.Context, *rand.Rand) { r.report.fault(name+" cut", ""); proxy.Cut() },
		func(context.Context, *rand.Rand) { r.report.fault(name+" reset", ""); proxy.Reset() },
	}
}

// hurtQueue makes the queue fail as a whole, for a while.
func (r *run) hurtQueue(ctx context.Context) {
	outage := func(name string, f emulator.Fault) act {
		return func(ctx context.Context, dice *rand.Rand) {
			d := between(dice, 500*time.Millisecond, 8*time.Second)
			if dice.IntN(2) == 0 {
				f.Queue = queues[dice.IntN(len(queues))]
			} else {
				f.Queue = ""
			}
			r.report.fault(name, fmt.Sprintf("%q for %v", f.Queue, d))
			// Faults are asked in their order: everything else comes after it.
			r.queue.ClearFaults()
			r.poison()
			r.addFault(f)
			r.sprinkle(dice)
			wait(ctx, d)
			r.queue.ClearFaults()
			r.poison()
			r.sprinkle(dice)
		}
	}
	acts := append(r.network("queue", r.queueProxy), r.pause, r.pause,
		outage("queue down", emulator.Fault{Route: publish, Status: 503}),
		outage("queue down", emulator.Fault{Route: publish, Status: 503, RetryAfter: "2"}),
		outage("queue hangs", emulator.Fault{Route: publish, Hang: true}),
		outage("queue stores and hangs", emulator.Fault{Route: publish, Hang: true, Store: true}),
		outage("queue stores and resets", emulator.Fault{Route: publish, Cut: emulator.CutReset, Store: true}),
		outage("queue closed", emulator.Fault{Route: publish, Status: 404}),
		outage("no credit", emulator.Fault{Route: publish, Status: 402}),
		outage("queue slow", emulator.Fault{Route: publish, Delay: 100 * time.Millisecond}),
	)
	r.hurt(ctx, 3, 2*time.Second, 8*time.Second, acts)
}

const publish = "queue.publish"

// poison makes the queue refuse some messages for good.
func (r *run) poison() {
	r.addFault(emulator.Fault{Route: publish, KeyPrefix: poisonPrefix, Status: 422})
}

// sprinkle scripts what goes wrong with single requests, all the time.
func (r *run) sprinkle(dice *rand.Rand) {
	for _, f := range []emulator.Fault{
		{Probability: 0.05, Status: 500},
		{Probability: r.mood.limited, Status: 429},
		{Probability: r.mood.limited / 20, Status: 429, RetryAfter: "1"},
		{Probability: 0.05, Store: true, Cut: emulator.CutReset},
		{Probability: 0.02, Store: true, Cut: emulator.CutHalf},
		{Probability: 0.01, Cut: emulator.CutClose},
		{Probability: 0.02, Body: emulator.BodyTruncated},
		{Probability: 0.02, Store: true, Status: 502, Body: emulator.BodyHTML},
		{Probability: 0.02, Delay: 700 * time.Millisecond},
		{Probability: 0.01, Delay: 3 * time.Second},
	} {
		f.Route, f.Seed = publish, dice.Uint64()
		f.Probability *= r.mood.faults
		r.addFault(f)
	}
}

func (r *run) addFault(f emulator.Fault) {
	if _, err := r.queue.AddFault(f); err != nil {
		r.report.violate("judge", "fault: %v", err)
	}
}
