package poll

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// ErrClosed is what [Source.Next] returns without an open session.
var ErrClosed = errors.New("no open session")

// errOpen says that the caller forgot to Close.
var errOpen = errors.New("the session before is still open")

// Why a session cannot be opened at the moment, or how one ends by itself.
var (
	errNotPrimary    = errors.New("server is in recovery")
	errReadOnly      = errors.New("session is read-only")
	errServersDiffer = errors.New("DATABASE_URL and the direct connection lead to different servers")
	errHeld          = errors.New("lock is held by another relay")
	errSlotInUse     = errors.New("a relay that reads the WAL holds the slot")
	errLost          = errors.New("the connection leads to another backend than the one with the lock")
	errReplaced      = errors.New("the table of messages was replaced, or its numbers went back")
)

// OperatorError is an error that lasts until a person acts.
type OperatorError struct {
	text string // what is wrong, with the names and values seen
	hint string // what to do, with a command
	err  error  // the cause, may be nil
}

// Error implements error.
func (e *OperatorError) Error() string {
	if e.err != nil {
		return e.text + ": " + pgtext.OneLine(e.err)
	}
	return e.text
}

// Hint is a sentence that says what to do.
func (e *OperatorError) Hint() string { return e.hint }

// Unwrap returns the cause.
func (e *OperatorError) Unwrap() error { return e.err }

const hintDirect = "set RELAY_REPLICATION_URL to the direct address of the server; DATABASE_URL may stay with the pooler"

func poolerError(text string, err error) error {
	return &OperatorError{
		text: text + ": a connection pooler answers, through which the lock that keeps two relays apart means nothing",
		hint: hintDirect, err: err,
	}
}

// explainConnect gives the refusals that a person must cure their hint.
func explainConnect(what string, config *pgx.ConnConfig, err error) error {
	text := "connect " + what
	role, database := pgx.Identifier{config.User}.Sanitize(), pgx.Identifier{config.Database}.Sanitize()
	if hint := pgtext.LetLogIn(err, role); hint != "" {
		return &OperatorError{text: text, err: err, hint: hint}
	}
	switch pgtext.SQLState(err) {
	case "08P01":
		if strings.Contains(err.Error(), "unsupported startup parameter") {
			return poolerError(text, err)
		}
	case "28000":
		return &OperatorError{text: text, err: err, hint: "add a line for role " + role + ", database " + database + " and this host to pg_hba.conf"}
	case "28P01":
		return &OperatorError{text: text, err: err, hint: pgtext.CheckPassword(role)}
	case "3D000":
		return &OperatorError{text: text, err: err, hint: "check the name of the database: there is no " + database}
	case "42501":
		return &OperatorError{text: text, err: err, hint: "grant connect on database " + database + " to " + role}
	}
	return &pgtext.ConnectError{What: what, Err: err}
}

// explainLook gives what a person must cure in the schema its hint.
func explainLook(err error) error {
	switch pgtext.SQLState(err) {
	case "42501":
		return &OperatorError{
			text: "look at the table of messages", err: err,
			hint: "`outbox-relay grants print` has the rights of each role; `outbox-relay doctor` names those that are missing",
		}
	case "42P01", "3F000", "42703":
		return &OperatorError{text: "look at the table of messages", err: err, hint: "run `outbox-relay migrate up`, or check RELAY_SCHEMA"}
	}
	return err
}

// The SQLSTATE of a statement that waited too long for a lock.
const codeLockTimeout = "55P03"
