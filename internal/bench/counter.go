package bench

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/relay"
)

// counter is a publisher that counts, and hands on to another one if there is
// one.
type counter struct {
	next relay.Publisher
	want int64

	first atomic.Int64 // when the first message came, in Unix nanoseconds
	n     atomic.Int64
	all   chan struct{} // closed when want messages were accepted
}

func newCounter(next relay.Publisher, want int) *counter {
	return &counter{next: next, want: int64(want), all: make(chan struct{})}
}

// Publish implements relay.Publisher.
func (c *counter) Publish(ctx context.Context, row *outbox.Row) (receipt relay.Receipt, err error) {
	if c.first.Load() == 0 {
		c.first.CompareAndSwap(0, time.Now().UnixNano())
	}
	if c.next != nil {
		if receipt, err = c.next.Publish(ctx, row); err != nil {
			return receipt, err
		}
	}
	if c.n.Add(1) == c.want {
		close(c.all)
	}
	return receipt, nil
}

func (c *counter) began() time.Time { return time.Unix(0, c.first.Load()) }
