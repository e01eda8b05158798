package cdc

import "sync"

// inbox takes the numbers of resolved messages from any goroutine and gives
// them to the owner of the stream.
type inbox struct {
	mu      sync.Mutex
	numbers []uint64
	closed  bool
}

// add takes numbers; after close it drops them.
func (i *inbox) add(numbers []uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.closed {
		i.numbers = append(i.numbers, numbers...)
	}
}

// swap returns the numbers that came in, in exchange for an empty slice whose
// memory may be used for the next.
func (i *inbox) swap(spare []uint64) []uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	numbers := i.numbers
	i.numbers = spare[:0]
	return numbers
}

func (i *inbox) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.numbers, i.closed = nil, true
}
