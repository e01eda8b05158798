package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// LoopConfig says how a queue is consumed. The zero value is usable.
type LoopConfig struct {
	// Concurrency bounds the messages at work, and so the transactions. 0 is 8.
	// With 1 the messages of a FIFO queue are handled in its order.
	Concurrency int
	// Lease is how long the queue keeps a message from others while we work on
	// it, in whole seconds. 0 is 60 s. Longer leaves the messages of a consumer
	// that died lying for longer.
	Lease time.Duration
	// HandlerTimeout bounds the work on one message. It is shorter than the
	// lease. 0 is half of the lease.
	HandlerTimeout time.Duration
	// PollInterval is the pause after the queue had nothing. 0 is 1 s.
	PollInterval time.Duration
	// MaxPause bounds the pause after failures of the queue, which doubles from
	// PollInterval on; the queue may ask for a longer one, up to 5 minutes. 0 is
	// 30 s.
	MaxPause time.Duration
	// RetryDelay is how long a message that failed stays away. 0 is 5 s.
	RetryDelay time.Duration
	// DrainTimeout is how long the messages at work have to end after a stop. 0
	// is 25 s.
	DrainTimeout time.Duration
	// Report is told of each delivery when its outcome is known, before the
	// queue learns of it; nil tells nobody. It is called from several goroutines
	// at once.
	Report func(Report)
	// Trouble is told what else goes wrong, and is no reason to stop: requests to
	// the queue ([QueueError]), [ErrLate], and before a message is asked for
	// [ErrNoTransaction]; nil tells nobody. It is called from several goroutines
	// at once.
	Trouble func(error)
}

// ErrLate says that messages arrived so late that their lease might end before
// their work. They were left alone, and come again.
var ErrLate = errors.New("messages arrived too late for their lease")

func (c *LoopConfig) setDefaults() {
	setDefault(&c.Concurrency, 8)
	setDefault(&c.Lease, time.Minute)
	setDefault(&c.HandlerTimeout, c.Lease/2)
	setDefault(&c.PollInterval, time.Second)
	setDefault(&c.MaxPause, 30*time.Second)
	setDefault(&c.RetryDelay, 5*time.Second)
	setDefault(&c.DrainTimeout, 25*time.Second)
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

func (c *LoopConfig) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Concurrency > 0, "Concurrency is %d, want at least 1", c.Concurrency)
	check(c.Lease >= time.Second && c.Lease%time.Second == 0, "Lease is %s, want whole seconds, at least 1", c.Lease)
	check(c.HandlerTimeout > 0 && c.HandlerTimeout < c.Lease, "HandlerTimeout is %s, want more than 0 and less than the lease of %s", c.HandlerTimeout, c.Lease)
	check(c.PollInterval > 0, "PollInterval is %s, want more than 0", c.PollInterval)
	check(c.MaxPause > 0, "MaxPause is %s, want more than 0", c.MaxPause)
	check(c.RetryDelay > 0, "RetryDelay is %s, want more than 0", c.RetryDelay)
	check(c.DrainTimeout > 0, "DrainTimeout is %s, want more than 0", c.DrainTimeout)
	return errors.Join(errs...)
}

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

// futile is how long to wait because all that was tried last has failed: it is
// more likely ours than the messages' fault, and each try costs a message one of
// its deliveries.
func (l *Loop) futile() time.Duration {
	rounds := int(l.failed.Load()) / l.config.Concurrency
	if rounds == 0 {
		return 0
	}
	return jitter(l.backoff(rounds - 1))
}

// reachable waits until the database takes transactions, if it did not at the
// last delivery or there was none yet: each delivery counts against a message's
// retries, and an outage of ours should cost no message all of them. It reports
// false if ctx ended first.
func (l *Loop) reachable(ctx context.Context) bool {
	for failures := 0; l.down.Load(); failures++ {
		err := l.consumer.probe(ctx)
		if err == nil {
			l.down.Store(false)
			break
		}
		if ctx.Err() != nil {
			return false
		}
		l.trouble(err)
		if !sleep(ctx, jitter(l.backoff(failures))) {
			return false
		}
	}
	return ctx.Err() == nil
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
	if l.config.Report != nil {
		l.config.Report(Report{Message: m, Outcome: outcome, Err: err, Elapsed: time.Since(began)})
	}
	// Also after the drain: the queue should learn what has happened.
	ctx := context.WithoutCancel(work)
	key := newKey()
	switch {
	case outcome.Done():
		err = l.queue.ack(ctx, leased.MessageID, key)
		if err != nil { // once more: a lost answer would cost a whole delivery
			err = l.queue.ack(ctx, leased.MessageID, key)
		}
	case work.Err() != nil:
		err = l.queue.nack(ctx, leased.MessageID, key, 0) // we stop, others may go on
	default:
		err = l.queue.nack(ctx, leased.MessageID, key, l.config.RetryDelay)
	}
	if err != nil {
		l.trouble(err) // the lease ends, and the message comes again
	}
}

func (l *Loop) handle(work context.Context, leased leased) (Message, Outcome, error) {
	m, err := l.envelope(leased.Payload)
	m.QueueMessageID = leased.MessageID
	if err != nil {
		if !errors.Is(err, ErrMalformed) {
			err = fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		return m, Refused, err
	}
	ctx, cancel := context.WithTimeout(work, l.config.HandlerTimeout)
	defer cancel()
	outcome, err := l.consumer.Handle(ctx, m)
	l.learn(outcome, err)
	return m, outcome, err
}

// learn remembers whether work is of any use at the moment.
func (l *Loop) learn(outcome Outcome, err error) {
	if outcome != Failed {
		l.failed.Store(0) // the database has answered
		return
	}
	l.failed.Add(1)
	if isAway(err) {
		l.down.Store(true)
	}
}

// pause is how long to wait before the next request: not at all while messages
// come.
func (l *Loop) pause(failures *int, messages int, err error) time.Duration {
	if err == nil {
		*failures = 0
		if messages > 0 {
			return 0
		}
		return jitter(l.config.PollInterval)
	}
	l.trouble(err)
	pause := jitter(l.backoff(*failures))
	*failures++
	if answer, ok := errors.AsType[*QueueError](err); ok {
		pause = max(pause, answer.RetryAfter)
	}
	return pause
}

func (l *Loop) backoff(failures int) time.Duration {
	pause := l.config.PollInterval
	for ; failures > 0 && pause < l.config.MaxPause; failures-- {
		pause *= 2
	}
	return min(pause, l.config.MaxPause)
}

func (l *Loop) trouble(err error) {
	if l.config.Trouble != nil {
		l.config.Trouble(err)
	}
}

// take waits for a free slot and takes all that are free, as far as one request
// can ask for. It returns 0 if ctx has ended.
func take(ctx context.Context, slots chan struct{}) int {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for taken := 1; taken < mostConsumed; taken++ {
		select {
		case slots <- struct{}{}:
		default:
			return taken
		}
	}
	return mostConsumed
}

// mostConsumed is what the queue is thought to give at once.
const mostConsumed = 100

func give(slots chan struct{}, n int) {
	for range n {
		<-slots
	}
}

// grace returns a context that ends d after ctx does.
func grace(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if sleep(work, d) {
			cancel()
		}
	})
	return work, func() { stop(); cancel() }
}
