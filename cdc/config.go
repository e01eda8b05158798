package cdc

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

// Config is what a [Source] needs to know. The defaults stand in the tags.
type Config struct {
	// Schema holds the table messages. It has no variable of its own here,
	// because other packages need the same value.
	Schema string

	// Slot is the name of the replication slot. All relays of one outbox use
	// the same; a second outbox needs another. Lower case letters, digits and
	// underscores.
	Slot string `env:"SLOT, default=outbox_relay"`

	// Publication is the name of the publication that holds the table.
	Publication string `env:"PUBLICATION, default=outbox_relay"`

	// SlotLost says what happens when the server has thrown away WAL that the
	// slot still needed, or the slot itself: "recreate" makes a new one, and
	// [Source.Created] says so; "stop" leaves it to a person.
	SlotLost string `env:"SLOT_LOST, default=recreate"`

	// SlotTimeout is how long one try to make the slot may wait for open
	// transactions before it starts over and says what it waits for.
	SlotTimeout time.Duration `env:"SLOT_TIMEOUT, default=30s"`

	// ConnectTimeout bounds the opening of a connection, and each question that
	// is put to the server.
	ConnectTimeout time.Duration `env:"CONNECT_TIMEOUT, default=10s"`

	// StatusInterval is how often the server is told the confirmed flush when
	// there is no other reason to tell it. Each time it is asked to answer.
	StatusInterval time.Duration `env:"STATUS_INTERVAL, default=5s"`

	// SilenceTimeout ends a session from which nothing was read for so long.
	// Several times StatusInterval, so that a busy server is not taken for a
	// dead one.
	SilenceTimeout time.Duration `env:"SILENCE_TIMEOUT, default=15s"`

	// WALSenderTimeout is the wal_sender_timeout of the session: how long the
	// server keeps the slot for a relay that is gone without a word, and so how
	// long a takeover may take. Shorter means more takeovers on a bad network.
	WALSenderTimeout time.Duration `env:"WAL_SENDER_TIMEOUT, default=15s"`

	// LeaseInterval is how often the server is asked whether the session still
	// holds the slot. [Source.LastWord] is about as old as this at most.
	LeaseInterval time.Duration `env:"LEASE_INTERVAL, default=2s"`

	// CheckInterval is how often publication, table and slot are looked at
	// while messages flow.
	CheckInterval time.Duration `env:"CHECK_INTERVAL, default=1m"`

	// StandbyInterval is about how often a relay that waits for the slot looks
	// whether it is free: half of what a takeover after a clean stop takes.
	StandbyInterval time.Duration `env:"STANDBY_INTERVAL, default=500ms"`

	// RetryMin and RetryMax bound the wait before the server is tried again;
	// between them it doubles each time.
	RetryMin time.Duration `env:"RECONNECT_MIN, default=250ms"`
	RetryMax time.Duration `env:"RECONNECT_MAX, default=30s"`

	// OperatorRetry is the wait after an error that a person must cure.
	OperatorRetry time.Duration `env:"OPERATOR_RETRY, default=1m"`

	// ShutdownPause is the wait after the server said that it wants to stop.
	ShutdownPause time.Duration `env:"SHUTDOWN_PAUSE, default=5s"`
}

// The values of Config.SlotLost.
const (
	SlotLostRecreate = "recreate"
	SlotLostStop     = "stop"
)

// slotName is what Postgres accepts as the name of a slot.
var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// identifierMax is the longest name that Postgres keeps whole, in bytes.
const identifierMax = 63

// Validate returns everything that is wrong with the settings, or nil.
func (c *Config) Validate() error {
	return errors.Join(
		validIdentifier("SCHEMA", c.Schema),
		c.validSlot(),
		validIdentifier("PUBLICATION", c.Publication),
		c.validSlotLost(),
		positive("SLOT_TIMEOUT", c.SlotTimeout),
		positive("CONNECT_TIMEOUT", c.ConnectTimeout),
		positive("STATUS_INTERVAL", c.StatusInterval),
		atLeast("SILENCE_TIMEOUT", c.SilenceTimeout, 2*c.StatusInterval, "twice STATUS_INTERVAL"),
		atLeast("WAL_SENDER_TIMEOUT", c.WALSenderTimeout, 2*c.StatusInterval, "twice STATUS_INTERVAL"),
		positive("LEASE_INTERVAL", c.LeaseInterval),
		positive("CHECK_INTERVAL", c.CheckInterval),
		positive("STANDBY_INTERVAL", c.StandbyInterval),
		positive("RECONNECT_MIN", c.RetryMin),
		atLeast("RECONNECT_MAX", c.RetryMax, c.RetryMin, "RECONNECT_MIN"),
		positive("OPERATOR_RETRY", c.OperatorRetry),
		positive("SHUTDOWN_PAUSE", c.ShutdownPause),
	)
}

func (c *Config) validSlot() error {
	if !slotName.MatchString(c.Slot) {
		return fmt.Errorf("SLOT is %q: slot names have 1 to %d characters of a-z 0-9 _", c.Slot, identifierMax)
	}
	return nil
}

func (c *Config) validSlotLost() error {
	if c.SlotLost != SlotLostRecreate && c.SlotLost != SlotLostStop {
		return fmt.Errorf("SLOT_LOST is %q: want %q or %q", c.SlotLost, SlotLostRecreate, SlotLostStop)
	}
	return nil
}

// validIdentifier accepts every name that Postgres can hold; all names are
// quoted wherever they are used.
func validIdentifier(variable, name string) error {
	if name == "" || len(name) > identifierMax {
		return fmt.Errorf("%s is %q: want a name of 1 to %d bytes", variable, name, identifierMax)
	}
	for _, r := range name {
		if r == 0 {
			return fmt.Errorf("%s is %q: a name cannot hold a zero byte", variable, name)
		}
	}
	return nil
}

func positive(variable string, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%s is %v: want more than 0", variable, d)
	}
	return nil
}

func atLeast(variable string, d, least time.Duration, name string) error {
	if d <= 0 || d < least {
		return fmt.Errorf("%s is %v: want at least %s (%v)", variable, d, name, least)
	}
	return nil
}
