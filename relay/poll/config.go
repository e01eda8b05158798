package poll

import (
	"errors"
	"fmt"
	"time"
)

// Config is what a [Source] needs to know. The env tags carry the names without
// the prefix RELAY_. What has none is set by who composes the settings: reading
// the WAL needs the same.
type Config struct {
	// Schema holds the table messages.
	Schema string
	// Slot names the relay's row in relays, and the lock.
	Slot string

	// ConnectTimeout bounds the opening of a connection, and each question that
	// is put to the server.
	ConnectTimeout time.Duration
	// StandbyInterval is about how often a relay that waits for the lock looks
	// whether it is free.
	StandbyInterval time.Duration
	// RetryMin and RetryMax bound the wait before the server is tried again;
	// between them it doubles each time.
	RetryMin, RetryMax time.Duration
	// OperatorRetry is the wait after an error that a person must cure.
	OperatorRetry time.Duration

	// Interval is how often the table is looked at in poll mode while there is
	// nothing new: what a message waits at most before it goes out, if no
	// transaction holds it back. While messages keep coming there is no wait.
	Interval time.Duration `env:"POLL_INTERVAL, default=250ms"`

	// LeaseTimeout is how long the server keeps the lock of poll mode for a
	// relay that is gone without a word, and so how long a takeover may take.
	// Shorter means more takeovers on a bad network.
	LeaseTimeout time.Duration `env:"POLL_LEASE_TIMEOUT, default=15s"`

	// Patience is how long a transaction that has written messages may stay open
	// in poll mode before the log names it, because it holds back messages with an
	// ordering key.
	Patience time.Duration `env:"POLL_PATIENCE, default=10s"`
}

// leastLease leaves room for a question or two that are slow to be answered.
const leastLease = 4 * beatInterval

// Validate returns everything that is wrong with the settings, or nil.
func (c *Config) Validate() error {
	return errors.Join(
		atLeast("POLL_INTERVAL", c.Interval, time.Millisecond),
		atLeast("POLL_LEASE_TIMEOUT", c.LeaseTimeout, leastLease),
		atLeast("POLL_PATIENCE", c.Patience, 100*time.Millisecond),
	)
}

func atLeast(variable string, d, least time.Duration) error {
	if d < least {
		return fmt.Errorf("%s is %v: want at least %v", variable, d, least)
	}
	return nil
}
