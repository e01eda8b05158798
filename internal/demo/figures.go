package demo

import (
	"fmt"
	"net/http"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// figure is a kind of line of the account.
type figure struct {
	id, label string
	value     func(*ledger) int64
	// check returns what does not hold; nil if the figure only tells.
	check func(*ledger) string
	note  string
}

// sections are the account, from the shop to the promises.
var sections = [][]figure{
	{
		{"transactions_committed", "transactions committed", func(l *ledger) int64 { return int64(l.facts.committed) }, (*ledger).checkOrders, "each order is in the shop's table"},
		{"transactions_rolled_back", "transactions rolled back", func(l *ledger) int64 { return int64(l.rolledBack) }, nil, "with their messages"},
		{"keys_repeated", "keys written a second time", func(l *ledger) int64 { return int64(l.repeated) }, nil, "refused as duplicates"},
		{"messages_committed", "messages committed", func(l *ledger) int64 { return int64(len(l.messages)) }, (*ledger).checkMessages, "as many as rows in outbox.messages"},
	},
	{
		{"relay_kills", "relay killed with -9", func(l *ledger) int64 { return int64(l.kills) }, (*ledger).checkKills, "started again at once"},
		{"requests", "requests to the queue", func(l *ledger) int64 { return int64(len(l.requests)) }, (*ledger).checkRequests, "accepted, known or told to wait"},
		{"answers_lost", "answers lost", func(l *ledger) int64 { return l.statuses(0) }, nil, "after the queue had accepted"},
		{"rate_limited", "answers 429", func(l *ledger) int64 { return l.statuses(http.StatusTooManyRequests) }, nil, "with Retry-After"},
		{"repeats", "repeats that the queue knew", func(l *ledger) int64 { return l.outcomes(emulator.Replayed) }, (*ledger).checkBytes, "same key, same bytes"},
		{"accepted", "messages accepted by the queue", func(l *ledger) int64 { return l.outcomes(emulator.Accepted) }, (*ledger).checkAccepted, "each once"},
	},
	{
		{"consumed", "messages consumed", func(l *ledger) int64 { return l.consumed }, (*ledger).checkConsumed, "handled or suppressed"},
		{"duplicates_suppressed", "duplicates suppressed by the claim", func(l *ledger) int64 { return l.suppressed }, nil, "not acknowledged, so they came again"},
		{"handled", "events handled", func(l *ledger) int64 { return l.handled }, (*ledger).checkHandled, "each once"},
		{"left", "left in the queue", func(l *ledger) int64 { return l.left }, (*ledger).checkLeft, ""},
	},
	{
		{"lost", "lost", func(l *ledger) int64 { return l.lost().count }, (*ledger).checkLost, "every committed key was accepted"},
		{"phantom", "phantom", func(l *ledger) int64 { return l.phantom().count }, (*ledger).checkPhantom, "no other key was ever sent"},
		{"out_of_order", "out of order", func(l *ledger) int64 { return l.outOfOrder().count }, (*ledger).checkOrder, "accepted in commit order, per ordering key"},
		{"marked", "marked in outbox.dispatched", func(l *ledger) int64 { return int64(len(l.marked)) }, (*ledger).checkMarked, "every committed message"},
		{"slot_behind", "bytes of WAL that the slot holds", func(l *ledger) int64 { return l.behind }, (*ledger).checkSlot, "up to date"},
	},
}

func (l *ledger) checkOrders() string {
	return agree(int64(l.orders), l.orderRows, "orders were placed", "are in the table")
}

func (l *ledger) checkMessages() string {
	return agree(int64(len(l.messages)), l.messageRows, "were written", "are in the table")
}

func (l *ledger) checkKills() string {
	return agree(killTimes, int64(l.kills), "kills were planned", "took place")
}

func (l *ledger) checkRequests() string {
	known := l.outcomes(emulator.Accepted) + l.outcomes(emulator.Replayed) + l.statuses(http.StatusTooManyRequests)
	return agree(int64(len(l.requests)), known, "requests", "are accounted for")
}

func (l *ledger) checkBytes() string {
	return l.changed().says("a key came with other bytes")
}

func (l *ledger) checkAccepted() string {
	return l.acceptedTwice().says("a key was accepted twice")
}

func (l *ledger) checkConsumed() string {
	return agree(l.consumed, l.handled+l.suppressed, "were handed out", "are accounted for")
}

func (l *ledger) checkHandled() string {
	if wrong := l.notHandledOnce(); wrong.count > 0 {
		return wrong.says(fmt.Sprintf("%s not handled exactly once", grouped(wrong.count)))
	}
	return agree(l.handled, int64(len(l.effects)), "claims were won", "events have an effect")
}

func (l *ledger) checkLeft() string {
	if l.left == 0 {
		return ""
	}
	return "nobody acknowledged them"
}

func (l *ledger) checkLost() string { return l.lost().says("committed and never accepted") }

func (l *ledger) checkPhantom() string { return l.phantom().says("sent and never committed") }

func (l *ledger) checkOrder() string {
	return l.outOfOrder().says("accepted after a later one of its ordering key")
}

func (l *ledger) checkMarked() string {
	if wrong := l.unmarked(); wrong.count > 0 {
		return wrong.says(fmt.Sprintf("%s not marked", grouped(wrong.count)))
	}
	return agree(int64(len(l.messages)), int64(len(l.marked)), "were committed", "are marked")
}

// slotLimit is how much WAL a slot that is up to date may hold. Postgres itself
// writes some now and then.
const slotLimit = 1 << 20

func (l *ledger) checkSlot() string {
	if l.behind <= slotLimit {
		return ""
	}
	return "the confirmed flush does not follow"
}

// agree is "" if two numbers are the same, and else says both.
func agree(want, got int64, these, those string) string {
	if want == got {
		return ""
	}
	return fmt.Sprintf("%s %s, %s %s", grouped(want), these, grouped(got), those)
}
