package cdc

import (
	"errors"
	"fmt"
	"sort"
)

// tracker knows how far the confirmed flush may go: to the end of the newest
// transaction such that it and all before it are resolved. It is a pure value
// without locks and clocks; the owner of the stream feeds it.
//
// Its memory depends on the number of transactions that are not confirmed yet,
// never on how many messages they have: of the messages of a transaction it
// keeps two counts and a seal.
type tracker struct {
	open       ring
	next       uint64 // the number of the next message
	unresolved uint64 // messages read and not resolved
	confirmed  lsn
}

// transaction is one that is not confirmed yet.
type transaction struct {
	end   lsn    // where it ends in the WAL; 0 until its Commit was read
	first uint64 // the number of its first message
	count uint64 // messages read so far
	left  uint64 // of these, not resolved
	// seal is the sum of a hash of each message's number, less that of each
	// resolved one. With all resolved it is 0, unless one was resolved twice
	// in place of another, which the counts alone would not show.
	seal uint64
}

// What the tracker refuses. Each of them means that the bookkeeping is wrong,
// and a position that comes from wrong bookkeeping must not be confirmed.
var (
	errNotOpen      = errors.New("a message or a commit outside of a transaction")
	errStillOpen    = errors.New("a begin inside of a transaction")
	errNotDelivered = errors.New("resolved before it was read")
	errTwice        = errors.New("resolved twice")
)

// begin opens a transaction. From here on nothing behind it is confirmed.
func (t *tracker) begin() error {
	if t.inTransaction() {
		return errStillOpen
	}
	t.open.push(transaction{first: t.next})
	return nil
}

// message counts a message of the open transaction.
func (t *tracker) message() error {
	if !t.inTransaction() {
		return errNotOpen
	}
	tx := t.open.last()
	tx.count++
	tx.left++
	tx.seal += scatter(t.next)
	t.next++
	t.unresolved++
	return nil
}

// commit closes the open transaction, which ends at end.
func (t *tracker) commit(end lsn) error {
	if !t.inTransaction() {
		return errNotOpen
	}
	t.open.last().end = end
	t.absorbEmpty()
	t.confirm()
	return nil
}

// absorbEmpty joins a last transaction without messages to the one before it:
// it is resolved as soon as that one is. Servers of version 14 send such pairs
// for every transaction that touches nothing published.
func (t *tracker) absorbEmpty() {
	if t.open.size() < 2 || t.open.last().count > 0 {
		return
	}
	end := t.open.last().end
	t.open.dropLast()
	t.open.last().end = end
}

// resolve counts the message with this number as resolved.
func (t *tracker) resolve(number uint64) error {
	if number >= t.next {
		return fmt.Errorf("message %d: %w", number, errNotDelivered)
	}
	i := sort.Search(t.open.size(), func(i int) bool { return t.open.at(i).first > number }) - 1
	if i < 0 {
		return fmt.Errorf("message %d: %w", number, errTwice)
	}
	tx := t.open.at(i)
	if number >= tx.first+tx.count || tx.left == 0 {
		return fmt.Errorf("message %d: %w", number, errTwice)
	}
	tx.left--
	t.unresolved--
	tx.seal -= scatter(number)
	if tx.left == 0 && tx.seal != 0 {
		return fmt.Errorf("a message between %d and %d: %w", tx.first, number, errTwice)
	}
	if i == 0 {
		t.confirm()
	}
	return nil
}

// follow moves the confirmed flush along with the server while no transaction
// is open: all WAL up to this position was read, and none of it is for us.
func (t *tracker) follow(position lsn) {
	if t.open.size() == 0 {
		t.raise(position)
	}
}

// settled reports whether no transaction is open.
func (t *tracker) settled() bool { return t.open.size() == 0 }

// inTransaction reports whether a Begin was read and its Commit was not.
func (t *tracker) inTransaction() bool {
	return t.open.size() > 0 && t.open.last().end == 0
}

// confirm moves over the resolved transactions at the front.
func (t *tracker) confirm() {
	for t.open.size() > 0 {
		tx := t.open.at(0)
		if tx.end == 0 || tx.left > 0 || tx.seal != 0 {
			return
		}
		t.raise(tx.end)
		t.open.dropFirst()
	}
}

// raise never lowers the position: a server may repeat itself, a confirmed
// flush may not go back.
func (t *tracker) raise(position lsn) {
	t.confirmed = max(t.confirmed, position)
}

// scatter spreads a number over 64 bits (the finalizer of SplitMix64), so that
// different sets of numbers have different sums.
func scatter(number uint64) uint64 {
	x := number + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
