package cdc

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// What only a person can cure. An [OperatorError] wraps one of these.
var (
	// ErrServer: the server is not set up for logical replication, or is not
	// one that can be replicated from.
	ErrServer = errors.New("server not ready for logical replication")
	// ErrPrivilege: the role may not connect, replicate or look.
	ErrPrivilege = errors.New("missing privilege")
	// ErrPooler: a connection pooler stands where the server should be.
	ErrPooler = errors.New("connection pooler in the way")
	// ErrTrust: one side does not trust the certificate of the other.
	ErrTrust = errors.New("no trust between relay and server")
	// ErrTable: the table of messages is missing or cannot be replicated.
	ErrTable = errors.New("table not fit for replication")
	// ErrPublication: the publication is missing or does not publish what is
	// inserted into the table.
	ErrPublication = errors.New("publication not fit")
	// ErrSlotForeign: a slot of this name exists for another use.
	ErrSlotForeign = errors.New("slot in use for something else")
	// ErrSlotLost: the server has thrown away WAL that the slot needed.
	ErrSlotLost = errors.New("slot lost")
	// ErrSlotHeld: somebody streams from a slot that has to be free. A Source
	// waits instead; only [Source.RemakeSlot] and [Source.DropSlot] say so.
	ErrSlotHeld = errors.New("slot held by another session")
)

// ErrClosed is what [Source.Next] returns without an open session.
var ErrClosed = errors.New("no open session")

// How a session can end by itself. Opening the next one is the cure.
var (
	errMalformed      = errors.New("malformed message of the stream")
	errSilent         = errors.New("server is silent")
	errSlotTaken      = errors.New("slot is no longer held by this session")
	errServerStopping = errors.New("server wants to stop")
	errStreamEnded    = errors.New("server ended the stream")
)

// Why a session cannot be opened at the moment.
var (
	errNotPrimary    = errors.New("server is in recovery")
	errReadOnly      = errors.New("session is read-only")
	errServersDiffer = errors.New("the SQL and the replication connection lead to different servers")
	errSlotBusy      = errors.New("slot is held by another session")
)

// OperatorError is an error that lasts until a person acts.
type OperatorError struct {
	kind error  // one of the sentinels
	text string // what is wrong, with the names and values seen
	hint string // what to do, with a command
	err  error  // the cause, may be nil
}

// Error implements error.
func (e *OperatorError) Error() string {
	if e.err != nil {
		return e.text + ": " + e.err.Error()
	}
	return e.text
}

// Hint is a sentence that says what to do.
func (e *OperatorError) Hint() string { return e.hint }

// Unwrap returns the sentinel and the cause.
func (e *OperatorError) Unwrap() []error {
	if e.err != nil {
		return []error{e.kind, e.err}
	}
	return []error{e.kind}
}

// ColumnError ends the stream before a message that the relay cannot read,
// because a column of its table is not what it has to be. The slot stays there.
type ColumnError struct {
	Schema, Table, Column string
	// Trouble is what is wrong with the column, such as "is missing".
	Trouble string
}

// Error implements error.
func (e *ColumnError) Error() string {
	return fmt.Sprintf("column %q of %s.%s %s", e.Column, e.Schema, e.Table, e.Trouble)
}

// Hint is a sentence that says what to do.
func (e *ColumnError) Hint() string {
	return "the WAL keeps such rows as they were written: give the table its column back, then run " +
		"`outbox-relay slot recreate --yes`; nothing is lost, the relay takes the messages from the table"
}

// GapError ends the stream where the publication did not exist when a message
// was written. The slot cannot get past this place.
type GapError struct {
	Publication string
	// Position is near where the stream ended, as a pg_lsn.
	Position string
	err      error
}

// Error implements error.
func (e *GapError) Error() string {
	return fmt.Sprintf("publication %q did not exist at %s: %v", e.Publication, e.Position, e.err)
}

// Hint is a sentence that says what to do.
func (e *GapError) Hint() string {
	return "the slot is older than the publication, which was dropped and made again, and cannot read past this place: run " +
		"`outbox-relay slot recreate --yes`; nothing is lost, the relay takes the messages from the table"
}

// Unwrap returns the server's error.
func (e *GapError) Unwrap() error { return e.err }

// remedy is what happens next after an error.
type remedy int

const (
	// retry: it passes by itself; try again with growing waits.
	retry remedy = iota
	// retrySlowly: it passes when somebody acts, and trying costs the server
	// something; try again at long intervals.
	retrySlowly
	// askOperator is retrySlowly, but a process that has just started returns
	// the error instead: it is more likely its settings than an accident.
	askOperator
	// standBy: another relay has the slot. Not an error.
	standBy
	// pause: the server wants to stop; leave it alone for a moment.
	pause
	// hold: the server is not the one of the last session. Wait for a person, and
	// look often.
	hold
)

// remedyFor decides what happens next.
func remedyFor(err error) remedy {
	_, operator := errors.AsType[*OperatorError](err)
	_, column := errors.AsType[*ColumnError](err)
	_, gap := errors.AsType[*GapError](err)
	_, refused := errors.AsType[*refusal](err)
	switch {
	case refused:
		return hold
	case errors.Is(err, errSlotBusy):
		return standBy
	case errors.Is(err, errServerStopping):
		return pause
	case operator, pgtext.SQLState(err) == codePrivilege:
		return askOperator
	case column, gap, pgtext.SQLState(err) == codeAllSlotsUsed:
		return retrySlowly
	default:
		return retry
	}
}

// The SQLSTATEs on which a decision hangs.
const (
	codeProtocolViolation   = "08P01"
	codeAuthorization       = "28000"
	codePassword            = "28P01"
	codeNoDatabase          = "3D000"
	codePrivilege           = "42501"
	codeSyntax              = "42601"
	codeUndefinedObject     = "42704"
	codeDuplicateObject     = "42710"
	codeAllSlotsUsed        = "53400"
	codeObjectNotReady      = "55000"
	codeInUse               = "55006"
	codeQueryCanceled       = "57014"
	codeCannotConnectNow    = "57P03"
	poolerRefusesParameters = "unsupported startup parameter"
)

// explainConnect gives the refusals that a person must cure their hint.
func explainConnect(what string, err error) error {
	role, database := whoAsked(err)
	err = &pgtext.ConnectError{What: what, Err: err}
	operator := func(kind error, hint string) error {
		return &OperatorError{kind: kind, text: kind.Error(), hint: hint, err: err}
	}
	if pgtext.Distrust(err) {
		return operator(ErrTrust, "sslrootcert must hold the authority of the server's certificate, and the host must be a name in it; "+
			"behind something that ends TLS before the server only channel_binding=disable works")
	}
	if hint := pgtext.Crowded(err, false); hint != "" {
		return &crowdedError{err: err, hint: hint}
	}
	if hint := pgtext.LetLogIn(err, role); hint != "" {
		return operator(ErrPrivilege, hint)
	}
	switch pgtext.SQLState(err) {
	case codePrivilege:
		return operator(ErrPrivilege, letReplicate(role)+"; and let it connect: grant connect on database "+database+" to "+role)
	case codeAuthorization:
		return operator(ErrPrivilege, "add a line for role "+role+", database "+database+" and this host to pg_hba.conf; logical replication "+
			"goes by the name of the database, not by the word replication")
	case codePassword:
		return operator(ErrPrivilege, pgtext.CheckPassword(role))
	case codeNoDatabase:
		return operator(ErrServer, "check the name of the database")
	case codeProtocolViolation:
		if strings.Contains(err.Error(), poolerRefusesParameters) {
			return operator(ErrPooler, "this looks like a connection pooler; give the relay a direct address for replication")
		}
	}
	return err
}

// whoAsked is the role that a connection was refused to, and the database, as
// SQL writes them.
func whoAsked(err error) (role, database string) {
	refused, ok := errors.AsType[*pgconn.ConnectError](err)
	if !ok {
		return "current_user", "current_database"
	}
	return pgx.Identifier{refused.Config.User}.Sanitize(), pgx.Identifier{refused.Config.Database}.Sanitize()
}

// letReplicate is the cure for a role, quoted, that may not replicate.
func letReplicate(role string) string {
	return "let the role replicate: alter role " + role + " replication; on RDS: grant rds_replication to " + role
}
