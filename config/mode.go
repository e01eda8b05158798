package config

import (
	"fmt"
	"time"
)

// The values of Config.Mode.
const (
	// ModeWAL reads messages from the WAL, by a replication slot.
	ModeWAL = "wal"
	// ModePoll reads messages from the table.
	ModePoll = "poll"
)

// Polls reports whether messages are read from the table.
func (c *Config) Polls() bool { return c.Mode == ModePoll }

func (c *Config) validateMode() error {
	if c.Mode != ModeWAL && c.Mode != ModePoll {
		return fmt.Errorf("RELAY_MODE is %q: want %q or %q", c.Mode, ModeWAL, ModePoll)
	}
	return nil
}

// leastHolderPatience is how long a standby gives the relay with the slot before
// it says that this one is silent: longer than the server usually waits for it.
const leastHolderPatience = 30 * time.Second

// share gives the packages the values that more than one of them needs.
func (c *Config) share() {
	c.CDC.Schema = c.Schema
	c.Relay.Schema, c.Relay.Slot, c.Relay.Polls = c.Schema, c.CDC.Slot, c.Polls()

	c.Admin.TrustWindow = c.Relay.TrustWindow
	c.Admin.HolderPatience = max(leastHolderPatience, 3*c.CDC.StatusInterval)
	c.Admin.LongestWork = max(c.Infrai.RequestTimeout, c.Relay.DrainTimeout)

	c.Poll.Schema, c.Poll.Slot = c.Schema, c.CDC.Slot
	c.Poll.ConnectTimeout, c.Poll.StandbyInterval = c.CDC.ConnectTimeout, c.CDC.StandbyInterval
	c.Poll.RetryMin, c.Poll.RetryMax, c.Poll.OperatorRetry = c.CDC.RetryMin, c.CDC.RetryMax, c.CDC.OperatorRetry
}

// validateTrust compares settings of different packages: a relay that was cut
// off must have stopped sending by the time the server gives what it holds to
// another one.
func (c *Config) validateTrust() error {
	variable, patience := "RELAY_WAL_SENDER_TIMEOUT", c.CDC.WALSenderTimeout
	if c.Polls() {
		variable, patience = "RELAY_POLL_LEASE_TIMEOUT", c.Poll.LeaseTimeout
	}
	if c.Relay.TrustWindow < patience {
		return nil
	}
	return fmt.Errorf("RELAY_TRUST_WINDOW is %v: want less than %s (%v)", c.Relay.TrustWindow, variable, patience)
}
