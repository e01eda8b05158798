package config

import (
	"fmt"

	"go.uber.org/zap/zapcore"
)

// Log says what is logged and how. Logs go to stderr.
type Log struct {
	// Level is the lowest level that is logged: debug, info, warn or error. At
	// debug there are several lines for each batch of messages. Payloads are
	// not logged at any level.
	Level zapcore.Level `env:"LEVEL, default=info"`
	// Format is what a line looks like: json (one object, for machines), console
	// (for people) or auto, which is console on a terminal and json elsewhere.
	Format string `env:"FORMAT, default=auto"`
}

// The values of Log.Format.
const (
	FormatAuto    = "auto"
	FormatConsole = "console"
	FormatJSON    = "json"
)

// Validate reports what is wrong.
func (l *Log) Validate() error {
	switch l.Format {
	case FormatAuto, FormatConsole, FormatJSON:
		return nil
	}
	return fmt.Errorf("FORMAT is %q: want %s, %s or %s", l.Format, FormatJSON, FormatConsole, FormatAuto)
}
