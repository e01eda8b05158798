package judge

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// queues are where messages go: the lane says which, so that a lane has one.
var queues = []string{"orders", "invoices", "emails", "audit"}

const (
	maxRows       = 20
	rollbackShare = 0.1
	keylessShare  = 0.2
	sickShare     = 0.001
	largeShare    = 0.01
	optionShare   = 0.1  // of the messages have a delay, or a priority
	laterShare    = 0.02 // are scheduled
	latest        = 8 * time.Second
	withdrawShare = 0.15 // of the transactions lose a message after their commit
	patientShare  = 0.7  // of these only if it is deferred at that time
	slowShare     = 0.02 // of the transactions stay open for a while
	slowest       = 4 * time.Second
)

// plan is all that is decided of a transaction before it begins. It depends on
// the seed, the writer and the transaction's number alone, whatever fails.
type plan struct {
	pause    time.Duration // before it
	rows     []plannedRow
	open     time.Duration // how long it stays open
	rollback bool
	withdraw int  // the number of the row that is deleted afterwards; -1
	patient  bool // it is deleted only if it is deferred
}

// plannedRow is one message.
type plannedRow struct {
	lane     int32 // -1 without ordering key
	queue    uint8
	fill     uint16 // bytes
	delay    int8   // delay_seconds; -1 without
	priority int8   // -1 without
	later    time.Duration
	sick     bool // the queue refuses it until its generation is healed
}

// newDice are dice for one of many things of one kind.
func newDice(seed, kind uint64, number int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, kind<<40|uint64(number)))
}

const writerKind = 1000

func newPlan(seed uint64, writer, number int, lanes []int32, mood mood) plan {
	dice := newDice(seed, writerKind+uint64(writer), number)
	p := plan{
		pause:    between(dice, 0, mood.pause),
		rows:     make([]plannedRow, 1+dice.IntN(maxRows)),
		rollback: dice.Float64() < rollbackShare,
		withdraw: -1,
		patient:  dice.Float64() < patientShare,
	}
	if dice.Float64() < slowShare {
		p.open = between(dice, 0, slowest)
	}
	for i := range p.rows {
		p.rows[i] = newPlannedRow(dice, lanes)
	}
	if dice.Float64() < withdrawShare {
		p.withdraw = p.choose(dice)
	}
	return p
}

func newPlannedRow(dice *rand.Rand, lanes []int32) plannedRow {
	r := plannedRow{lane: -1, queue: uint8(dice.IntN(len(queues))), fill: uint16(dice.IntN(300)), delay: -1, priority: -1}
	if dice.Float64() >= keylessShare {
		r.lane = lanes[dice.IntN(len(lanes))]
		r.queue = uint8(int(r.lane) % len(queues))
	}
	if dice.Float64() < largeShare {
		r.fill = uint16(dice.IntN(20_000))
	}
	if dice.Float64() < optionShare {
		r.delay = int8(dice.IntN(4))
	}
	if dice.Float64() < optionShare {
		r.priority = int8(dice.IntN(10))
	}
	if dice.Float64() < laterShare {
		r.later = between(dice, time.Second, latest)
	}
	r.sick = r.later == 0 && dice.Float64() < sickShare
	return r
}

// choose takes the row that is withdrawn: one that is scheduled, if there is
// any, because those are deferred for sure; no sick one.
func (p *plan) choose(dice *rand.Rand) int {
	for i := range p.rows {
		if p.rows[i].later > 0 {
			return i
		}
	}
	if n := dice.IntN(len(p.rows)); !p.rows[n].sick {
		return n
	}
	return -1
}

// key names a row. A sick one is known by its beginning.
func key(writer, n int, generation uint8) string {
	if generation > 0 {
		return fmt.Sprintf("%s%d-%d", sickPrefix(generation), writer, n)
	}
	return fmt.Sprintf("w%d-%d", writer, n)
}

// sickPrefix is how the keys of sick messages of a generation begin.
func sickPrefix(generation uint8) string { return fmt.Sprintf("sick%d-w", generation) }
