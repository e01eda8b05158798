package relay

import (
	"errors"
	"fmt"
	"time"
)

// Config holds the relay's settings. The env tags carry the names without the
// prefix RELAY_.
type Config struct {
	// Schema is the schema of the outbox tables.
	Schema string
	// Slot is the name of the replication slot: the relay's row in relays has
	// the same name.
	Slot string
	// Holder says who this process is in relays.holder, for people.
	Holder string
	// Version is the program's version, recorded in relays.version.
	Version string
	// Polls says that the source reads the table itself: it shows every message
	// without outcome, so there is nothing to reconcile and nothing to sweep for.
	Polls bool

	// MaxInFlight is the number of requests that may be under way at once, over
	// all queues. More hides more of the queue's latency and costs a connection
	// each.
	MaxInFlight int `env:"MAX_IN_FLIGHT, default=256"`
	// MaxInFlightPerQueue is the same for one queue; it keeps a slow queue from
	// taking all requests.
	MaxInFlightPerQueue int `env:"MAX_IN_FLIGHT_PER_QUEUE, default=256"`
	// WindowMessages is the number of messages that may be in memory without an
	// outcome. Reading stops while the window is full. Beside them there may be as
	// many that come back from the table, with half as many bytes.
	WindowMessages int `env:"WINDOW_MESSAGES, default=8192"`
	// WindowBytes is the number of bytes of message text that may be in memory
	// without an outcome. A single larger message is still taken, alone. With
	// large messages the process needs about four times as much memory.
	WindowBytes int `env:"WINDOW_BYTES, default=16777216"`

	// OutcomeLinger is how long an outcome waits for others before it is
	// written. Longer means fewer transactions and less WAL, and more messages
	// that are sent again after a crash.
	OutcomeLinger time.Duration `env:"OUTCOME_LINGER, default=10ms"`
	// OutcomeBatch is the number of outcomes that are written at once without
	// waiting for more.
	OutcomeBatch int `env:"OUTCOME_BATCH, default=1000"`

	// RetryMin is the longest wait before the second attempt; it doubles with
	// every attempt.
	RetryMin time.Duration `env:"RETRY_MIN, default=200ms"`
	// RetryMax is the longest wait between two attempts.
	RetryMax time.Duration `env:"RETRY_MAX, default=30s"`
	// DeferAfter is how long a message is tried again from memory, and how long
	// sending may be paused, before messages wait in the table instead. Until
	// then the slot waits with them.
	DeferAfter time.Duration `env:"DEFER_AFTER, default=2s"`
	// OverflowAfter is how long a message may wait in memory for its turn
	// before its queue, or its lane, overflows into the table: that is slower
	// than its messages come.
	OverflowAfter time.Duration `env:"OVERFLOW_AFTER, default=5s"`
	// DeferMin is the longest wait before a deferred message is tried again; it
	// doubles with every attempt.
	DeferMin time.Duration `env:"DEFER_MIN, default=1s"`
	// DeferMax is the longest wait between two attempts of a deferred message.
	DeferMax time.Duration `env:"DEFER_MAX, default=5m"`
	// MaxAttempts is the number of failures after which a message becomes a
	// dead letter. Only those count before which others got through to its
	// queue since the last one: an outage burns nobody's attempts.
	MaxAttempts int `env:"MAX_ATTEMPTS, default=20"`
	// KeyWindow is how long the queue is trusted to remember a key. A message
	// that may have been accepted longer ago and goes out again is a possible
	// duplicate, and marked as one.
	KeyWindow time.Duration `env:"KEY_WINDOW, default=24h"`
	// FIFOWindow is the same for a queue with ordering=queue: a FIFO queue
	// remembers keys for a shorter time.
	FIFOWindow time.Duration `env:"FIFO_WINDOW, default=5m"`
	// ConflictAttempts is the number of attempts after which a message whose key
	// the queue reports as taken or in flight (409) becomes a dead letter.
	ConflictAttempts int `env:"CONFLICT_ATTEMPTS, default=6"`

	// BreakerFailures is the number of failures in a row after which the relay
	// stops sending and probes with one request at a time.
	BreakerFailures int `env:"BREAKER_FAILURES, default=5"`
	// ProbeMin is the wait before the first probe; it doubles with every probe
	// that fails.
	ProbeMin time.Duration `env:"PROBE_MIN, default=1s"`
	// ProbeMax is the longest wait between two probes.
	ProbeMax time.Duration `env:"PROBE_MAX, default=15s"`

	// SweepInterval is how often the table is searched for messages that the
	// stream did not show.
	SweepInterval time.Duration `env:"SWEEP_INTERVAL, default=1m"`
	// Retention is how long a message and its outcome are kept after it was
	// dispatched; 0 keeps them for ever. Deferred messages and dead letters are
	// never removed.
	Retention time.Duration `env:"RETENTION, default=168h"`
	// DeadLetterRetention is how long a dead letter and its message are kept
	// after a person discarded it; 0 keeps them for ever. One that is not
	// discarded is never removed.
	DeadLetterRetention time.Duration `env:"DEAD_LETTER_RETENTION, default=720h"`

	// CloudEventsSource is the attribute source of the events on queues with
	// envelope=cloudevents: a URI, or the path of one, that says where they come
	// from. Without it that is /outbox-relay/ and the name of the database. A
	// message's header ce-source wins. A change is for messages to come.
	CloudEventsSource string `env:"CLOUDEVENTS_SOURCE"`
	// CloudEventsType is their attribute type. A message's header ce-type wins. A
	// change is for messages to come.
	CloudEventsType string `env:"CLOUDEVENTS_TYPE, default=outbox-relay.message"`

	// MetricsQueues is the number of queues that have metrics of their own: the
	// first ones to which this process sends. The rest is counted together, as
	// queue "other". Each costs about 35 time series.
	MetricsQueues int `env:"METRICS_QUEUES, default=50"`

	// TrustWindow is how old the last word of the server may be when a request
	// is sent. It must be shorter than the time after which the server gives
	// the slot to another relay.
	TrustWindow time.Duration `env:"TRUST_WINDOW, default=10s"`
	// DrainTimeout is how long requests in flight may take after a stop. Writing
	// their outcomes may take some seconds more, if Postgres does not answer:
	// keep the sum below the patience of the service manager.
	DrainTimeout time.Duration `env:"DRAIN_TIMEOUT, default=20s"`
}

// Validate reports every setting that is out of range.
func (c *Config) Validate() error {
	var errs []error
	atLeast := func(name string, value, least int) {
		if value < least {
			errs = append(errs, fmt.Errorf("%s is %d, want at least %d", name, value, least))
		}
	}
	longer := func(name string, value, least time.Duration) {
		if value < least {
			errs = append(errs, fmt.Errorf("%s is %s, want at least %s", name, value, least))
		}
	}
	atLeast("MAX_IN_FLIGHT", c.MaxInFlight, 1)
	atLeast("MAX_IN_FLIGHT_PER_QUEUE", c.MaxInFlightPerQueue, 1)
	atLeast("WINDOW_MESSAGES", c.WindowMessages, 1)
	atLeast("WINDOW_BYTES", c.WindowBytes, 1<<20)
	atLeast("OUTCOME_BATCH", c.OutcomeBatch, 1)
	atLeast("CONFLICT_ATTEMPTS", c.ConflictAttempts, 1)
	atLeast("MAX_ATTEMPTS", c.MaxAttempts, 1)
	atLeast("BREAKER_FAILURES", c.BreakerFailures, 1)
	atLeast("METRICS_QUEUES", c.MetricsQueues, 0)
	longer("OUTCOME_LINGER", c.OutcomeLinger, 0)
	longer("RETRY_MIN", c.RetryMin, time.Millisecond)
	longer("RETRY_MAX", c.RetryMax, c.RetryMin)
	longer("DEFER_AFTER", c.DeferAfter, 0)
	longer("OVERFLOW_AFTER", c.OverflowAfter, 100*time.Millisecond)
	longer("DEFER_MIN", c.DeferMin, time.Millisecond)
	longer("DEFER_MAX", c.DeferMax, c.DeferMin)
	longer("KEY_WINDOW", c.KeyWindow, time.Second)
	longer("FIFO_WINDOW", c.FIFOWindow, time.Second)
	longer("PROBE_MIN", c.ProbeMin, time.Millisecond)
	longer("PROBE_MAX", c.ProbeMax, c.ProbeMin)
	longer("SWEEP_INTERVAL", c.SweepInterval, 100*time.Millisecond)
	longer("RETENTION", c.Retention, 0)
	longer("DEAD_LETTER_RETENTION", c.DeadLetterRetention, 0)
	longer("TRUST_WINDOW", c.TrustWindow, time.Second)
	longer("DRAIN_TIMEOUT", c.DrainTimeout, 0)
	errs = append(errs, c.validateEnvelope())
	return errors.Join(errs...)
}
