package demo

import (
	"slices"
	"sync"
)

// message is what a till wrote into the outbox.
type message struct {
	key, queue, orderingKey string
}

// book is what the tills know of their sales. It is safe for concurrent use.
type book struct {
	mu sync.Mutex
	sales
}

// sales are the entries of the book.
type sales struct {
	committed  int // transactions
	rolledBack int // transactions
	repeated   int // keys that were written a second time and refused
	orders     int // rows that must be in the shop's table

	// messages were committed. Those of one ordering key stand in the order of
	// their commits, because one till has it and sells one after the other.
	messages []message
}

// read returns the entries so far.
func (b *book) read() sales {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.sales
	now.messages = slices.Clip(now.messages) // they only grow: these never change
	return now
}

func (b *book) enterCommit(messages []message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.committed++
	b.orders++
	b.messages = append(b.messages, messages...)
}

func (b *book) enterRollback() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rolledBack++
}

func (b *book) enterRepeat(keys int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.committed++
	b.repeated += keys
}
