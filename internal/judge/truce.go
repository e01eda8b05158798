package judge

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/waits"
)

const (
	// troubleTime is how long everything may go wrong between two quiet times.
	troubleTime = 35 * time.Second
	// quietTime is how long it stays quiet after the relay has caught up. Longer
	// than what may take promptness, so that something is judged.
	quietTime = 15 * time.Second
	// catchUpTime and catchUpRate bound how long that takes: a while, and a
	// second for so many messages that wait. A relay that died several times in a
	// row sends one request at a time for carefulTime.
	catchUpTime = 30 * time.Second
	catchUpRate = 300
	carefulTime = time.Minute
)

// quietTimes lets everything but some queue be well now and then: bounds on time
// can only be judged when nothing breaks for a while.
func (r *run) quietTimes(ctx context.Context) {
	for number := 0; waits.Sleep(ctx, troubleTime); number++ {
		if number%2 == 0 {
			r.lull(ctx, number)
		} else {
			r.truce(ctx)
		}
	}
}

// lull keeps one queue dead while everything else is well: the others go on, and
// the slot moves.
func (r *run) lull(ctx context.Context, number int) {
	defer r.quiet()()
	dice := newDice(r.cfg.Seed, trucesKind, number)
	broken, how := dice.IntN(len(queues)), dice.IntN(dead)
	var end func()
	done := r.history.begin(disturbance{parts: queuePart(broken), name: "lull", detail: queues[broken] + ": " + outages[how].name})
	f := outages[how].fault
	f.Queue = queues[broken]
	end = r.script.begin(f)
	if r.catchUp(ctx, broken) && waits.Sleep(ctx, time.Duration(r.cfg.Scale*float64(quietTime))) {
		r.judged(&r.report.Lulls)
	}
	end()
	done()
}

// truce lets everything be well.
func (r *run) truce(ctx context.Context) {
	defer r.quiet()()
	r.report.say("truce")
	if r.catchUp(ctx, -1) && waits.Sleep(ctx, time.Duration(r.cfg.Scale*float64(quietTime))) {
		r.judged(&r.report.Truces)
	}
}

// judged counts a quiet time.
func (r *run) judged(figure *int64) {
	r.report.count(figure)
	r.report.say("judged, with bounds on time times %.1f", r.report.slack())
}

// quiet waits for the end of what is going wrong and keeps anything else from
// beginning. Single requests fail rarely, and writers write less.
func (r *run) quiet() (end func()) {
	r.peace.infrastructure.Lock()
	r.peace.queues.Lock()
	r.slowly.Store(true)
	r.script.soften(true)
	r.calmDown()
	return func() {
		r.calmDown = r.history.beginQuietly(unrest)
		r.script.soften(false)
		r.slowly.Store(false)
		r.peace.queues.Unlock()
		r.peace.infrastructure.Unlock()
	}
}

// unrest is the failing of single requests, which may keep a queue behind for
// long.
var unrest = disturbance{parts: allQueues(), name: "single requests fail"}

// catchUp waits until the queues that are well have accepted everything, and
// reports whether they did before ctx ended.
func (r *run) catchUp(ctx context.Context, broken int) bool {
	begun, limit := time.Now(), time.Duration(0)
	for {
		behind := r.watcher.behindOf(broken)
		if len(behind) == 0 {
			r.report.say("caught up after %v", time.Since(begun).Round(time.Millisecond))
			return true
		}
		if limit == 0 {
			limit = r.scaled(catchUpTime + time.Duration(r.watcher.waiting())*time.Second/catchUpRate)
			if r.mood.mortal {
				limit += carefulTime
			}
		}
		if time.Since(begun) > limit {
			r.report.violate("behind", "not caught up after %v: %s", limit, strings.Join(behind, ", "))
			return false
		}
		if !waits.Sleep(ctx, 200*time.Millisecond) {
			return false
		}
	}
}

// scaled is a bound of this run.
func (r *run) scaled(d time.Duration) time.Duration {
	return time.Duration(r.report.scale * float64(d))
}

// behindOf says which queues, except one, have not caught up since they are well.
func (w *watcher) behindOf(broken int) (behind []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, queue := range queues {
		if i != broken && w.caught[i] == 0 {
			behind = append(behind, fmt.Sprintf("%s has %d messages that wait, for up to %v", queue, w.backlog.waiting[i], w.backlog.oldest[i]))
		}
	}
	return behind
}

// waiting is how many messages wait.
func (w *watcher) waiting() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range queues {
		n += w.backlog.waiting[i]
	}
	return n
}
