package cdc

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// model is the flush tracker as one would explain it: it remembers every
// message of every transaction.
type model struct {
	transactions []modelTransaction
	next         uint64
	heard        lsn // the highest keepalive while nothing was open
}

type modelTransaction struct {
	end        lsn // 0 until the commit
	unresolved map[uint64]bool
}

// confirmed goes from the beginning to the first transaction that is not
// resolved.
func (m *model) confirmed() lsn {
	position := lsn(0)
	for _, tx := range m.transactions {
		if tx.end == 0 || len(tx.unresolved) > 0 {
			return max(position, m.heard)
		}
		position = tx.end
	}
	return max(position, m.heard)
}

func (m *model) settled() bool {
	for _, tx := range m.transactions {
		if tx.end == 0 || len(tx.unresolved) > 0 {
			return false
		}
	}
	return true
}

func (m *model) inTransaction() bool {
	n := len(m.transactions)
	return n > 0 && m.transactions[n-1].end == 0
}

func (m *model) unresolved() []uint64 {
	var numbers []uint64
	for number := range m.next {
		for _, tx := range m.transactions {
			if tx.unresolved[number] {
				numbers = append(numbers, number)
			}
		}
	}
	return numbers
}

func (m *model) resolve(number uint64) {
	for _, tx := range m.transactions {
		delete(tx.unresolved, number)
	}
}

// machine feeds the tracker and the model with the same steps.
type machine struct {
	tracker tracker
	model   model
	wal     lsn // the server's end of WAL
}

func (m *machine) begin(t *rapid.T) {
	if m.model.inTransaction() {
		return
	}
	must(t, m.tracker.begin())
	m.model.transactions = append(m.model.transactions, modelTransaction{unresolved: map[uint64]bool{}})
}

func (m *machine) message(t *rapid.T) {
	if !m.model.inTransaction() {
		return
	}
	must(t, m.tracker.message())
	m.model.transactions[len(m.model.transactions)-1].unresolved[m.model.next] = true
	m.model.next++
}

func (m *machine) commit(t *rapid.T) {
	if !m.model.inTransaction() {
		return
	}
	m.wal += lsn(rapid.IntRange(1, 100).Draw(t, "bytes"))
	must(t, m.tracker.commit(m.wal))
	m.model.transactions[len(m.model.transactions)-1].end = m.wal
}

func (m *machine) keepalive(t *rapid.T) {
	m.wal += lsn(rapid.IntRange(0, 100).Draw(t, "bytes"))
	m.tracker.follow(m.wal)
	if m.model.settled() {
		m.model.heard = m.wal
	}
}

func (m *machine) resolve(t *rapid.T) {
	numbers := m.model.unresolved()
	if len(numbers) == 0 {
		return
	}
	number := rapid.SampledFrom(numbers).Draw(t, "number")
	must(t, m.tracker.resolve(number))
	m.model.resolve(number)
}

func must(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// Promise 3: the confirmed flush never passes an unresolved message; and it
// passes everything else.
func TestPromise3_ConfirmedFlushNeverPassesAnUnresolvedMessage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var m machine
		last := lsn(0)
		t.Repeat(map[string]func(*rapid.T){
			"begin": m.begin, "message": m.message, "commit": m.commit,
			"keepalive": m.keepalive, "resolve": m.resolve,
			"": func(t *rapid.T) {
				got, want := m.tracker.confirmed, m.model.confirmed()
				if got != want {
					t.Fatalf("confirmed %s, want %s", got, want)
				}
				if got < last {
					t.Fatalf("confirmed went back from %s to %s", last, got)
				}
				last = got
				if m.tracker.settled() != m.model.settled() {
					t.Fatalf("settled %v, want %v", m.tracker.settled(), m.model.settled())
				}
			},
		})
	})
}

// A caller that resolves numbers twice, too early or out of thin air may stop
// the confirmed flush, but never push it past an unresolved message.
func TestPromise3_HoldsWhateverIsResolved(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var m machine
		t.Repeat(map[string]func(*rapid.T){
			"begin": m.begin, "message": m.message, "commit": m.commit, "keepalive": m.keepalive,
			"resolve anything": func(t *rapid.T) {
				number := rapid.Uint64Range(0, m.model.next+1).Draw(t, "number")
				if m.tracker.resolve(number) == nil {
					m.model.resolve(number)
				}
			},
			"": func(t *rapid.T) {
				if got, most := m.tracker.confirmed, m.model.confirmed(); got > most {
					t.Fatalf("confirmed %s, but what is unresolved allows %s", got, most)
				}
			},
		})
	})
}

// FuzzPromise3 is the first property with steps that a fuzzer chooses.
func FuzzPromise3(f *testing.F) {
	f.Add([]byte("bmmcr"))
	f.Add([]byte("bmcbmcbcRrk"))
	f.Add([]byte("bcbckbmRckr"))
	f.Fuzz(func(t *testing.T, steps []byte) {
		fuzzPromise3(t, steps[:min(len(steps), 400)])
	})
}

func fuzzPromise3(t *testing.T, steps []byte) {
	var m machine
	for _, step := range steps {
		m.wal++
		unresolved := m.model.unresolved()
		switch {
		case step == 'b' && !m.model.inTransaction():
			m.check(t, m.tracker.begin())
			m.model.transactions = append(m.model.transactions, modelTransaction{unresolved: map[uint64]bool{}})
		case step == 'm' && m.model.inTransaction():
			m.check(t, m.tracker.message())
			m.model.transactions[len(m.model.transactions)-1].unresolved[m.model.next] = true
			m.model.next++
		case step == 'c' && m.model.inTransaction():
			m.check(t, m.tracker.commit(m.wal))
			m.model.transactions[len(m.model.transactions)-1].end = m.wal
		case step == 'k':
			m.tracker.follow(m.wal)
			if m.model.settled() {
				m.model.heard = m.wal
			}
		case len(unresolved) > 0: // any other byte chooses what to resolve
			number := unresolved[int(step)%len(unresolved)]
			m.check(t, m.tracker.resolve(number))
			m.model.resolve(number)
		}
		if got, want := m.tracker.confirmed, m.model.confirmed(); got != want {
			t.Fatalf("after %q: confirmed %s, want %s", steps, got, want)
		}
	}
}

func (m *machine) check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTracker_RefusesWrongBookkeeping(t *testing.T) {
	t.Parallel()
	// open is a tracker with messages 0 and 1 in one transaction, and 2 in the
	// next.
	open := func() *tracker {
		tr := &tracker{}
		for _, err := range []error{
			tr.begin(), tr.message(), tr.message(), tr.commit(10),
			tr.begin(), tr.message(), tr.commit(20),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		return tr
	}
	tests := map[string]struct {
		do   func(*tracker) error
		want error
	}{
		"begin inside of a transaction": {func(tr *tracker) error {
			return errors.Join(tr.begin(), tr.begin())
		}, errStillOpen},
		"message outside of a transaction": {(*tracker).message, errNotOpen},
		"commit outside of a transaction":  {func(tr *tracker) error { return tr.commit(30) }, errNotOpen},
		"a number that was not read":       {func(tr *tracker) error { return tr.resolve(3) }, errNotDelivered},
		"one number in place of another": {func(tr *tracker) error {
			return errors.Join(tr.resolve(0), tr.resolve(0))
		}, errTwice},
		"a number of a confirmed transaction": {func(tr *tracker) error {
			return errors.Join(tr.resolve(0), tr.resolve(1), tr.resolve(1))
		}, errTwice},
		"a number of a resolved transaction behind an open one": {func(tr *tracker) error {
			return errors.Join(tr.resolve(2), tr.resolve(2))
		}, errTwice},
		"a number when all are confirmed": {func(tr *tracker) error {
			return errors.Join(tr.resolve(0), tr.resolve(1), tr.resolve(2), tr.resolve(2))
		}, errTwice},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := test.do(open()); !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
		})
	}
}

// Memory depends on open transactions, not on their messages, nor on empty
// transactions behind an open one.
func TestTracker_MemoryIsBounded(t *testing.T) {
	t.Parallel()
	var tr tracker
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(tr.begin())
	for range 100_000 {
		check(tr.message())
	}
	check(tr.commit(1))
	for end := range lsn(100_000) {
		check(tr.begin())
		check(tr.commit(end + 2))
	}
	if got := len(tr.open.slots); got > 16 {
		t.Errorf("one open transaction and many empty ones take %d slots", got)
	}
	for number := range uint64(100_000) {
		check(tr.resolve(number))
	}
	if tr.confirmed != 100_001 {
		t.Errorf("confirmed %s, want the end of the last empty transaction", tr.confirmed)
	}
	for end := range lsn(100_000) {
		check(tr.begin())
		check(tr.message())
		check(tr.commit(end + 200_000))
	}
	for number := range uint64(100_000) {
		check(tr.resolve(100_000 + number))
	}
	if got := len(tr.open.slots); got > ringKept {
		t.Errorf("an empty ring keeps %d slots, want at most %d", got, ringKept)
	}
}

func TestTracker_AllocatesNothingInSteadyState(t *testing.T) {
	var tr tracker
	allocs := testing.AllocsPerRun(1000, func() {
		err := errors.Join(tr.begin(), tr.message(), tr.commit(tr.confirmed+1), tr.resolve(tr.next-1))
		if err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("a resolved transaction costs %v allocations", allocs)
	}
}
