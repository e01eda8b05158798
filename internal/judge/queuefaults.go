package judge

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/waits"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// outages are the ways in which a queue can fail as a whole.
var outages = []struct {
	name  string
	own   bool // the other queues have nothing to do with it
	fault emulator.Fault
}{
	{"queue down", true, emulator.Fault{Status: 503}},
	{"queue fails", true, emulator.Fault{Status: 500}},
	{"queue hangs", true, emulator.Fault{Hang: true}},
	{"queue stores and hangs", true, emulator.Fault{Hang: true, Store: true}},
	{"queue stores and resets", true, emulator.Fault{Cut: emulator.CutReset, Store: true}},
	{"queue resets", true, emulator.Fault{Cut: emulator.CutReset}},
	{"queue unknown", true, emulator.Fault{Status: 404}},
	{"queue slow", true, emulator.Fault{Delay: 100 * time.Millisecond}},
	{"queue down, come again", false, emulator.Fault{Status: 503, RetryAfter: "2"}},
	{"queue limited", false, emulator.Fault{Status: 429}},
	{"queue limited, come again", false, emulator.Fault{Status: 429, RetryAfter: "2"}},
	{"key not accepted", false, emulator.Fault{Status: 401}},
	{"no credit", false, emulator.Fault{Status: 402}},
}

// dead are the outages of which a queue is dead while the others live.
const dead = 7

// hurtQueue makes the queue fail as a whole, or one of the queues.
func (r *run) hurtQueue(ctx context.Context) {
	acts := append(r.network("requests", requests, r.queueProxy), r.pause, r.pause)
	for i := range outages {
		acts = append(acts, r.outage(i))
	}
	r.hurt(ctx, queueKind, &r.peace.queues, 2*time.Second, 8*time.Second, acts)
}

func (r *run) outage(number int) act {
	return func(ctx context.Context, dice *rand.Rand) {
		d, queue := between(dice, 500*time.Millisecond, 8*time.Second), dice.IntN(2*len(queues))
		r.breakQueue(ctx, number, queue, d)
	}
}

// breakQueue lets a queue fail for a while; a number beyond the queues is all of
// them.
func (r *run) breakQueue(ctx context.Context, number, queue int, d time.Duration) {
	f, parts, which := outages[number].fault, allQueues(), "all"
	if queue < len(queues) {
		f.Queue, which = queues[queue], queues[queue]
		if outages[number].own {
			parts = queuePart(queue)
		}
	}
	var end func()
	r.lasting(ctx, disturbance{parts: parts, name: outages[number].name, detail: which + " for"}, d,
		func() { end = r.script.begin(f) }, func() { end() })
}

// pause stops a queue as an operator does, and lets it go on.
func (r *run) pause(ctx context.Context, dice *rand.Rand) {
	queue, d := dice.IntN(len(queues)), between(dice, time.Second, 8*time.Second)
	r.lasting(ctx, disturbance{parts: queuePart(queue), name: "queue paused", detail: queues[queue] + " for"}, d,
		func() { r.setPaused(ctx, queues[queue], true) },
		func() { r.setPaused(context.WithoutCancel(ctx), queues[queue], false) })
}

// setPaused tries until the server is there.
func (r *run) setPaused(ctx context.Context, queue string, paused bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := r.ask(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `insert into outbox.queues (queue, paused) values ($1, $2)
				on conflict (queue) do update set paused = excluded.paused`, queue, paused)
			return err
		})
		if err == nil {
			return
		}
		if !waits.Sleep(ctx, reconnectPause) {
			if !paused {
				r.report.violate("judge", "resume %s: %v", queue, err)
			}
			return
		}
	}
}
