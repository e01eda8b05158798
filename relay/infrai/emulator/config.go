package emulator

import (
	"errors"
	"fmt"
)

// Config says what the emulator knows at its start and how much it may keep in
// memory. The zero value is a useful emulator without queues.
type Config struct {
	// APIKey is the only key that is taken; empty takes any.
	APIKey string `env:"API_KEY"`
	// Queues are created at the start, as standard queues.
	Queues []string `env:"QUEUES"`
	// Discard accepts a message and forgets it together with its key: nothing
	// can be consumed, and a repeated key counts as accepted again. Memory
	// stays flat for ever, which is what a benchmark of a publisher wants.
	Discard bool `env:"DISCARD"`
	// MaxKeys is how many idempotency keys are remembered; beyond it the oldest
	// is forgotten before its window ends. 0 means 1,000,000, which costs about
	// 300 MB when full.
	MaxKeys int `env:"MAX_KEYS"`
	// JournalEntries is how many requests the journal keeps; 0 means 100,000.
	JournalEntries int `env:"JOURNAL_ENTRIES"`
	// JournalBytes is how many bytes of bodies and headers the journal keeps; 0
	// means 64 MiB. What is kept first goes first.
	JournalBytes int `env:"JOURNAL_BYTES"`
	// Settings answer the open questions.
	Settings Settings
}

const (
	defaultMaxKeys        = 1_000_000
	defaultJournalEntries = 100_000
	defaultJournalBytes   = 64 << 20
)

// Validate reports everything that is wrong with the settings.
func (c Config) Validate() error {
	var errs []error
	for _, name := range c.Queues {
		if !validQueueName(name) {
			errs = append(errs, fmt.Errorf("QUEUES holds %q, want names of up to 63 of a-z, 0-9, _ and -", name))
		}
	}
	for name, n := range map[string]int{"MAX_KEYS": c.MaxKeys, "JOURNAL_ENTRIES": c.JournalEntries, "JOURNAL_BYTES": c.JournalBytes} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("%s is %d, want 0 or more", name, n))
		}
	}
	return errors.Join(append(errs, c.Settings.Validate())...)
}

func (c Config) withDefaults() Config {
	c.MaxKeys = orDefault(c.MaxKeys, defaultMaxKeys)
	c.JournalEntries = orDefault(c.JournalEntries, defaultJournalEntries)
	c.JournalBytes = orDefault(c.JournalBytes, defaultJournalBytes)
	c.Settings = c.Settings.withDefaults()
	return c
}

func orDefault(n, fallback int) int {
	if n == 0 {
		return fallback
	}
	return n
}
