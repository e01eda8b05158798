package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// ErrLate says that messages arrived so late that their lease might end before
// their work. They were left alone, and come again.
var ErrLate = errors.New("messages arrived too late for their lease")

// Loop consumes a queue and handles each event once. What is handled, or was
// before, is acked; what failed is nacked and comes again, until the queue gives
// up and moves it to its dead letter queue. The queue has no way to refuse a
// message for good, so what is [Refused] goes the same way. While the database
// takes no transactions that write nothing is consumed, and while all that is
// tried fails, little.
type Loop struct {
	consumer *Consumer
	queue    *queueClient
	envelope Envelope
	config   LoopConfig
	down     atomic.Bool  // the database took no transaction, or was not asked yet
	failed   atomic.Int64 // deliveries that failed since the last one that did not
}

// NewLoop reports everything that is wrong with what it gets.
func NewLoop(c *Consumer, queue Queue, envelope Envelope, config LoopConfig) (*Loop, error) {
	config.setDefaults()
	client, err := newQueueClient(queue)
	if envelope == nil {
		err = errors.Join(err, errors.New("the envelope is missing"))
	}
	if err := errors.Join(c.validate(), err, config.validate()); err != nil {
		return nil, err
	}
	l := &Loop{consumer: c, queue: client, envelope: envelope, config: config}
	l.down.Store(true)
	return l, nil
}

// Run consumes until ctx ends, and returns nil. Then it asks for no more; what is
// at work has DrainTimeout to end and is acked, and what is not ready by then is
// rolled back and nacked. A queue that cannot be reached is tried again for as
// long as it takes. Run returns when all its handlers have.
func (l *Loop) Run(ctx context.Context) error {
	work, cancel := grace(ctx, l.config.DrainTimeout)
	defer cancel()
	var workers sync.WaitGroup
	defer l.queue.close()
	defer workers.Wait()
	slots := make(chan struct{}, l.config.Concurrency) // one token for each message at work
	failures := 0
	for l.reachable(ctx) {
		free := take(ctx, slots)
		if free == 0 {
			return nil
		}
		if pause := l.futile(); pause > 0 && !sleep(ctx, pause) {
			return nil
		}
		// A request that is under way at a stop is not cut off: its messages
		// would be leased to nobody.
		began := time.Now()
		messages, err := l.queue.consume(work, free, l.config.Lease)
		started := l.start(work, &workers, slots, messages[:min(len(messages), free)], began)
		give(slots, free-started)
		pause := l.pause(&failures, len(messages), err)
		if pause > 0 && !sleep(ctx, pause) {
			return nil
		}
	}
	return nil
}

// start begins the work on messages and returns on how many. A lease counts from
// the request on: the answer may have been under way for long. The messages are
// asked for only when they can be started, so that none waits here while its
// lease runs.
func (l *Loop) start(work context.Context, workers *sync.WaitGroup, slots chan struct{}, messages []leased, began time.Time) int {
	if len(messages) == 0 {
		return 0
	}
	if time.Since(began)+l.config.HandlerTimeout >= l.config.Lease {
		l.trouble(fmt.Errorf("%w: %d after %s", ErrLate, len(messages), time.Since(began).Round(time.Millisecond)))
		return 0
	}
	for _, m := range messages {
		workers.Go(func() {
			defer func() { <-slots }()
			l.deliver(work, m)
		})
	}
	return len(messages)
}

// deliver handles one message and tells the queue.
func (l *Loop) deliver(work context.Context, leased leased) {
	began := time.Now()
	m, outcome, err := l.handle(work, leased)
	l.report(Report{Message: m, Outcome: outcome, Err: err, Elapsed: time.Since(began)})
	// Also after the drain: the queue should learn what has happened.
	ctx := context.WithoutCancel(work)
	key, delay := newKey(), delayOf(err, l.config.RetryDelay)
	switch {
	case outcome.Done():
		err = l.queue.ack(ctx, leased.MessageID, key)
		if err != nil { // once more: a lost answer would cost a whole delivery
			err = l.queue.ack(ctx, leased.MessageID, key)
		}
	case work.Err() != nil:
		err = l.queue.nack(ctx, leased.MessageID, key, 0) // we stop, others may go on
	default:
		err = l.queue.nack(ctx, leased.MessageID, key, delay)
	}
	if err != nil {
		l.trouble(err) // the lease ends, and the message comes again
	}
}

func (l *Loop) handle(work context.Context, leased leased) (Message, Outcome, error) {
	m, err := read(func() (Message, error) { return l.envelope(leased.Payload) })
	m.QueueMessageID = leased.MessageID
	if err != nil {
		return m, Refused, err
	}
	ctx, cancel := context.WithTimeout(work, l.config.HandlerTimeout)
	defer cancel()
	outcome, err := l.consumer.Handle(ctx, m)
	l.learn(outcome, err)
	return m, outcome, err
}

func (l *Loop) report(r Report) {
	switch {
	case l.config.Report != nil:
		l.config.Report(r)
	case !r.Outcome.Done():
		slog.Warn("delivery is not over", "consumer", l.consumer.Name, "queue", l.queue.name, "event", r.Message.ID, "outcome", r.Outcome, "error", r.Err)
	}
}

func (l *Loop) trouble(err error) {
	if l.config.Trouble != nil {
		l.config.Trouble(err)
		return
	}
	slog.Warn("consuming is in trouble", "consumer", l.consumer.Name, "queue", l.queue.name, "error", err)
}
