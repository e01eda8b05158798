package demo

import "errors"

// ErrStopped says that the demo was stopped before it had its account.
var ErrStopped = errors.New("stopped before the account was drawn")

// LogsError is an error with the place where the logs are that may explain it.
type LogsError struct {
	Err    error
	Folder string
}

func (e *LogsError) Error() string { return e.Err.Error() }

// Unwrap returns what went wrong.
func (e *LogsError) Unwrap() error { return e.Err }

// Hint says where to look.
func (e *LogsError) Hint() string { return "the logs of relay, queue and Postgres are in " + e.Folder }
