package judge

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// script is what the queue does wrong, in the order in which it is asked: the
// outages of the moment, the sick messages, and what goes wrong with single
// requests all the time. A change adds the new list before it removes the old
// one, from its end, so that no request slips through between them.
type script struct {
	queue  *emulator.Server
	report *Report
	mood   mood
	seed   uint64

	mu      sync.Mutex
	ids     []uint64
	outages []*emulator.Fault
	sick    []uint8 // generations
	mild    bool    // single requests fail rarely, and none is told to come later
	changes int
}

// change changes the script.
func (s *script) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	s.changes++
	old := s.ids
	s.ids = nil
	s.addOutages(false)
	for _, generation := range s.sick {
		s.add(sickness(generation))
	}
	s.addOutages(true)
	s.sprinkle(newDice(s.seed, sprinkleKind, s.changes))
	for _, id := range slices.Backward(old) { // what comes first is needed longest
		s.queue.RemoveFault(id)
	}
}

// addOutages adds those in which the queue takes messages, or the others: it
// must not take sick ones.
func (s *script) addOutages(takes bool) {
	for _, f := range s.outages {
		if takes == (f.Store || f.Delay > 0) {
			s.add(*f)
		}
	}
}

func (s *script) add(f emulator.Fault) {
	f.Route = publish
	id, err := s.queue.AddFault(f)
	if err != nil {
		s.report.violate("judge", "fault: %v", err)
	}
	s.ids = append(s.ids, id)
}

// sickness refuses a generation of sick messages: every other one for good, the
// others as if the queue failed.
func sickness(generation uint8) emulator.Fault {
	f := emulator.Fault{KeyPrefix: sickPrefix(generation), Status: 422}
	if generation%2 == 0 {
		f.Status = 500
	}
	return f
}

// begin adds an outage, which end takes away.
func (s *script) begin(f emulator.Fault) (end func()) {
	kept := &f
	s.change(func() { s.outages = append(s.outages, kept) })
	return func() {
		s.change(func() { s.outages = slices.DeleteFunc(s.outages, func(f *emulator.Fault) bool { return f == kept }) })
	}
}

// infect makes a generation of sick messages; heal takes all up to one away.
func (s *script) infect(generation uint8) {
	s.change(func() { s.sick = append(s.sick, generation) })
}

func (s *script) heal(generation uint8) {
	s.change(func() { s.sick = slices.DeleteFunc(s.sick, func(g uint8) bool { return g <= generation }) })
}

// soften makes failures of single requests rare, or usual again.
func (s *script) soften(mild bool) {
	s.change(func() { s.mild = mild })
}

// mildness is the factor for what goes wrong in good times.
const mildness = 0.05

// sprinkle scripts what goes wrong with single requests.
func (s *script) sprinkle(dice *rand.Rand) {
	factor, limited := s.mood.faults, s.mood.limited
	if s.mild {
		factor, limited = mildness, 0
	}
	for _, f := range []emulator.Fault{
		{Probability: factor * 0.05, Status: 500},
		{Probability: limited, Status: 429},
		{Probability: limited / 20, Status: 429, RetryAfter: "1"},
		{Probability: factor * 0.05, Store: true, Cut: emulator.CutReset},
		{Probability: factor * 0.02, Store: true, Cut: emulator.CutHalf},
		{Probability: factor * 0.01, Cut: emulator.CutClose},
		{Probability: factor * 0.02, Body: emulator.BodyTruncated},
		{Probability: factor * 0.02, Store: true, Status: 502, Body: emulator.BodyHTML},
		{Probability: factor * 0.02, Delay: 1200 * time.Millisecond},
		{Probability: factor * 0.01, Delay: 3 * time.Second},
	} {
		f.Seed = dice.Uint64()
		if f.Probability > 0 { // 0 would meet all
			s.add(f)
		}
	}
}
