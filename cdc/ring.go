package cdc

// ring is a queue of transactions that can be searched. The zero value is
// empty. It keeps its memory between uses, up to a limit, so that a steady
// stream allocates nothing.
type ring struct {
	slots []transaction // the length is 0 or a power of two
	head  int           // of the first transaction, in slots
	used  int
}

// ringKept is how many free slots an empty ring keeps: 160 KiB, a second of
// small transactions.
const ringKept = 4096

func (r *ring) size() int { return r.used }

// at is the transaction at index i, counted from the oldest.
func (r *ring) at(i int) *transaction {
	return &r.slots[(r.head+i)&(len(r.slots)-1)]
}

func (r *ring) last() *transaction { return r.at(r.used - 1) }

func (r *ring) push(tx transaction) {
	if r.used == len(r.slots) {
		r.grow()
	}
	r.used++
	*r.last() = tx
}

func (r *ring) dropLast() { r.used-- }

func (r *ring) dropFirst() {
	r.head = (r.head + 1) & (len(r.slots) - 1)
	r.used--
	if r.used == 0 && len(r.slots) > ringKept {
		*r = ring{}
	}
}

func (r *ring) grow() {
	slots := make([]transaction, max(16, 2*len(r.slots)))
	n := copy(slots, r.slots[r.head:])
	copy(slots[n:], r.slots[:r.head])
	r.slots, r.head = slots, 0
}
