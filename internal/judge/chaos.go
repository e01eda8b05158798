package judge

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/netfault"
	"github.com/outbox-relay/outbox-relay/internal/waits"
)

// between is a random time.
func between(dice *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(dice.Int64N(int64(most-least)))
}

// mood is what differs between runs: one that is always behind shows other
// mistakes than one that mostly keeps up, and only relays that live for long
// show what they lose.
type mood struct {
	faults  float64       // factor for the faults of single requests
	limited float64       // share of requests that are told to come later: each one pauses the queue
	pause   time.Duration // the longest of a writer between two transactions
	calm    float64       // factor for the time between two outages
	mortal  bool          // relays are killed and stopped
}

func newMood(seed uint64) mood {
	dice := rand.New(rand.NewPCG(seed, 5))
	return mood{
		faults:  []float64{0.1, 0.5, 1}[dice.IntN(3)],
		limited: []float64{0.0005, 0.005, 0.05}[dice.IntN(3)],
		pause:   []time.Duration{600 * time.Millisecond, 1500 * time.Millisecond, 5 * time.Second}[dice.IntN(3)],
		calm:    []float64{0.5, 1, 2}[dice.IntN(3)],
		mortal:  dice.IntN(4) > 0,
	}
}

// What is decided by dice of its own.
const (
	relaysKind uint64 = iota + 1
	databaseKind
	queueKind
	trucesKind
	sprinkleKind
	operatorKind
)

// act does something bad and makes it good again.
type act func(context.Context, *rand.Rand)

// hurt does one thing after the other to a part, until ctx ends. Each has dice
// of its own: how the ones before it went changes nothing. Whoever holds peace
// keeps it from beginning another.
func (r *run) hurt(ctx context.Context, kind uint64, peace *sync.RWMutex, least, most time.Duration, acts []act) {
	for number := 0; ; number++ {
		dice := newDice(r.cfg.Seed, kind, number)
		if !waits.Sleep(ctx, time.Duration(r.mood.calm*float64(between(dice, least, most)))) {
			return
		}
		peace.RLock()
		if ctx.Err() == nil {
			acts[dice.IntN(len(acts))](ctx, dice)
		}
		peace.RUnlock()
	}
}

// lasting is a disturbance that lasts for d or until ctx ends: break it, mend it.
func (r *run) lasting(ctx context.Context, d disturbance, how time.Duration, do, undo func()) {
	if d.detail == "" {
		d.detail = "for"
	}
	d.detail += " " + how.Round(time.Millisecond).String()
	end := r.history.begin(d)
	do()
	waits.Sleep(ctx, how)
	undo()
	end()
}

// sudden is a disturbance that is over when it is done.
func (r *run) sudden(d disturbance, do func()) {
	end := r.history.begin(d)
	do()
	end()
}

// network is what can happen to the connections of a part.
func (r *run) network(name string, parts part, proxy *netfault.Proxy) []act {
	is := func(what string) disturbance { return disturbance{parts: parts, name: name + " " + what} }
	return []act{
		func(ctx context.Context, dice *rand.Rand) {
			r.lasting(ctx, is("frozen"), between(dice, time.Second, 20*time.Second), proxy.Freeze, proxy.Thaw)
		},
		func(ctx context.Context, dice *rand.Rand) {
			slow := between(dice, time.Millisecond, 60*time.Millisecond)
			r.lasting(ctx, is("slow"), between(dice, time.Second, 5*time.Second),
				func() { proxy.Delay(slow) }, func() { proxy.Delay(0) })
		},
		func(ctx context.Context, dice *rand.Rand) {
			r.lasting(ctx, is("refused"), between(dice, 100*time.Millisecond, 5*time.Second),
				func() { proxy.Refuse(true); proxy.Reset() }, func() { proxy.Refuse(false) })
		},
		func(context.Context, *rand.Rand) { r.sudden(is("cut"), proxy.Cut) },
		func(context.Context, *rand.Rand) { r.sudden(is("reset"), proxy.Reset) },
	}
}
