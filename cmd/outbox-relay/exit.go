package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/explain"
	"github.com/outbox-relay/outbox-relay/internal/hint"
	"github.com/outbox-relay/outbox-relay/internal/infraiadmin"
	"github.com/outbox-relay/outbox-relay/internal/pgtext"
	"github.com/outbox-relay/outbox-relay/relay/poll"
	"github.com/outbox-relay/outbox-relay/schema"
)

// The exit codes are an API: scripts and service managers decide by them. New
// ones may come; an unknown one is a failure.
const (
	exitStopped      = 0
	exitUnexpected   = 1
	exitUsage        = 2
	exitSchema       = 10
	exitSlotHeld     = 11
	exitSlotLost     = 12
	exitDoctorFailed = 13
	exitNeedsPerson  = 14
	exitNoMessage    = 15
	exitVerifyFailed = 16
)

// exitCodes says what each code means, in the order of the help text.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitStopped, "stopped on request, or done"},
	{exitUnexpected, "unexpected error"},
	{exitUsage, "wrong usage or settings"},
	{exitSchema, "the schema is missing, or of another version"},
	{exitSlotHeld, "another relay holds the slot (one-shot verbs; `run` waits)"},
	{exitSlotLost, "the slot is missing, lost or not ours"},
	{exitDoctorFailed, "doctor found problems, or could not make a repair"},
	{exitNeedsPerson, "a person is needed: settings of the server, rights, certificates, publication, tables or account of the queue"},
	{exitNoMessage, "explain knows no such message"},
	{exitVerifyFailed, "verify found messages without outcome, or with two"},
}

func exitCodeHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "  %-3d %s\n", c.code, c.meaning)
	}
	return strings.TrimRight(b.String(), "\n")
}

// exitCode is the code that stands for an error.
func exitCode(err error) int {
	switch {
	case err == nil:
		return exitStopped
	case is[*usageError](err), is[*config.Error](err):
		return exitUsage
	case is[*schema.VersionError](err):
		return exitSchema
	case errors.Is(err, cdc.ErrSlotLost), errors.Is(err, cdc.ErrSlotForeign), is[*slotError](err):
		return exitSlotLost
	case errors.Is(err, cdc.ErrSlotHeld):
		return exitSlotHeld
	case is[*doctorError](err), is[*repairError](err):
		return exitDoctorFailed
	case is[*explain.UnknownError](err):
		return exitNoMessage
	case is[*verifyError](err):
		return exitVerifyFailed
	case is[*poll.OperatorError](err), is[*heldError](err), is[*doctor.RightsError](err):
		return exitNeedsPerson
	case is[*infraiadmin.Different](err), queueNeedsPerson(err):
		return exitNeedsPerson
	case is[*cdc.OperatorError](err), needsPerson(pgtext.SQLState(err)), pgtext.Distrust(err):
		return exitNeedsPerson
	}
	return exitUnexpected
}

// queueNeedsPerson reports whether an error of the queue lasts until somebody
// changes its key, account or address.
func queueNeedsPerson(err error) bool {
	refused, ok := errors.AsType[*infraiadmin.Error](err)
	return ok && refused.NeedsPerson()
}

// needsPerson reports whether an error of the server lasts until somebody changes
// its settings, rights or tables: starting again is no cure.
func needsPerson(code string) bool {
	switch code {
	case "28000", "28P01", // pg_hba.conf, password
		"3D000", "3F000", "42P01", "42703", "42883", // no such database, schema, table, column, function
		"42501": // right
		return true
	}
	return false
}

// is reports whether err is of a type, or wraps such an error.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// usageError says that the command line is wrong.
type usageError struct{ command, text string }

func (e *usageError) Error() string { return e.text }

// Hint says where to look.
func (e *usageError) Hint() string { return "see `" + e.command + " --help`" }

// loggedError is an error that the log has told already.
type loggedError struct{ err error }

func (e *loggedError) Error() string { return e.err.Error() }

func (e *loggedError) Unwrap() error { return e.err }

// newHint is what can be done about an error, as far as its text does not say it.
func newHint(err error) string {
	hint := hintOf(err)
	if strings.Contains(err.Error(), hint) {
		return ""
	}
	return hint
}

// hintOf is what can be done about an error; empty if nobody knows.
func hintOf(err error) string {
	text := hint.Of(err)
	switch {
	case text != "":
		return text
	case pgtext.SQLState(err) == "42501": // insufficient_privilege
		return "`outbox-relay grants print` has the rights of each role; with the relay's DATABASE_URL `outbox-relay doctor` names those that are missing"
	}
	return ""
}

// report writes an error for people, with what to do about it on a line of its
// own.
func report(w io.Writer, err error) {
	if err == nil || is[*loggedError](err) {
		return
	}
	fmt.Fprintln(w, "outbox-relay:", strings.ReplaceAll(err.Error(), "\n", "\n  "))
	if hint := newHint(err); hint != "" {
		fmt.Fprintln(w, "hint:", hint)
	}
}

// quote makes text that somebody else wrote safe for a terminal.
func quote(text string) string { return strconv.Quote(text) }
