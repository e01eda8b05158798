package demo

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Config says how the demo is played.
type Config struct {
	// Program is the path of outbox-relay, which is started as queue and as
	// relay.
	Program string
	// Load is how long the shop sells.
	Load time.Duration
	// Seed repeats the choices of the tills, the queue and the consumer; how
	// they meet in time is different every time.
	Seed uint64
	// Talk gets what happens, as it happens.
	Talk io.Writer
	// Live means that Talk is a terminal, where a line can be written again.
	Live bool
	// Colour lets Talk and the account be coloured.
	Colour bool
}

// The shortest and the longest load. The journal is kept in memory.
const (
	minLoad = time.Second
	maxLoad = 10 * time.Minute
)

// Validate reports everything that is wrong with the settings.
func (c Config) Validate() error {
	var errs []error
	if c.Program == "" {
		errs = append(errs, errors.New("there is no program to start"))
	}
	if c.Load < minLoad || c.Load > maxLoad {
		errs = append(errs, fmt.Errorf("the load lasts %g s, want %g to %g s", c.Load.Seconds(), minLoad.Seconds(), maxLoad.Seconds()))
	}
	return errors.Join(errs...)
}
