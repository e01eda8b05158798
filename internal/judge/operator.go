package judge

import (
	"context"
	"hash/fnv"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/waits"
)

const (
	// roundPause is the wait between two looks at the dead letters.
	roundPause = 2 * time.Second
	// generationTime is how long messages of one generation get sick; a
	// generation later it is healed. generations bounds their number.
	generationTime = 12 * time.Second
	generations    = 200
	// Shares of dead letters: given up, and redriven although still sick.
	discardShare = 10
	hastyShare   = 5
)

// operators infect and heal messages and look after the dead letters, until ctx
// ends.
func (r *run) operators(ctx context.Context) {
	lasts := max(generationTime, r.cfg.Duration/generations)
	healing := time.NewTicker(lasts)
	defer healing.Stop()
	for generation := uint8(1); ; {
		select {
		case <-healing.C:
			generation++
			r.script.infect(generation)
			r.sick.Store(int32(generation))
			if generation > 2 {
				r.heal(generation - 2)
			}
		case <-ctx.Done():
			return
		default:
		}
		_ = r.ask(ctx, r.tendDeadLetters) // a server that is away is asked again
		waits.Sleep(ctx, roundPause)
	}
}

// healLast heals what would never come to an end: without others that get
// through, no attempt of a message that fails is held against it. Messages that
// are refused stay sick, if the last generation is one of those.
func (r *run) healLast() {
	generation := uint8(r.sick.Load())
	if fails := generation%2 == 0; !fails {
		generation--
	}
	r.heal(generation)
}

// heal lets the queue take what is sick up to a generation.
func (r *run) heal(generation uint8) {
	r.ledger.heal(generation) // first: the queue may take one at once
	r.script.heal(generation)
}

// crashed is the reason of messages that are held to have killed relays. Who
// kills relays all the time has to expect some.
const crashed = "crashed_relay"

// tendDeadLetters decides about each dead letter: it is redriven if its queue
// would take it now; some are given up, and some are redriven too early.
func (r *run) tendDeadLetters(ctx context.Context, conn *pgx.Conn) error {
	o := operate.New(conn, "outbox")
	o.Pause = 0
	list, err := o.DeadLetters(ctx, operate.Filter{Discarded: true})
	if err != nil {
		return err
	}
	var redrive, discard []int64
	for i := range list {
		d := &list[i]
		gone := d.Reason == operate.ReasonDiscarded
		if d.MessageGone {
			continue
		}
		n, sick := r.ledger.died(d.Key, gone)
		chance := r.chance(d.Key)
		switch {
		case gone:
		case r.ledger.well(n):
			if d.Reason != crashed || !r.mood.mortal {
				r.report.violate("dead letters", "%s is dead, %s after %d attempts, status %v: nobody scripted that",
					d.Key, d.Reason, d.Attempts, d.LastStatus)
			}
			redrive = r.redriven(redrive, d.MessageID, n)
		case chance%discardShare == 0:
			discard = append(discard, d.MessageID)
		case !sick || chance%hastyShare == 1 && !r.hasty[d.Key]:
			r.hasty[d.Key] = true
			redrive = r.redriven(redrive, d.MessageID, n)
		}
	}
	return r.decide(ctx, o, redrive, discard)
}

func (r *run) redriven(ids []int64, id int64, n name) []int64 {
	r.ledger.redriving(n)
	return append(ids, id)
}

// decide carries out what was decided.
func (r *run) decide(ctx context.Context, o *operate.Operator, redrive, discard []int64) error {
	if len(redrive) > 0 {
		done, err := o.Redrive(ctx, redrive, func(int) {})
		r.report.add(&r.report.Redriven, done)
		if err != nil {
			return err
		}
	}
	for ids := range slices.Chunk(discard, 1) {
		done, err := o.Discard(ctx, ids, "given up")
		r.report.add(&r.report.Discarded, done)
		if err != nil {
			return err
		}
	}
	return nil
}

// chance is a number of a key that only the seed changes.
func (r *run) chance(key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails
	return newDice(r.cfg.Seed^h.Sum64(), operatorKind, 0).Uint64()
}
