package cdc

import (
	"errors"
	"slices"
	"strings"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// How a session ends, in [Stats].
const (
	endClosed     = "closed"          // the relay ended it
	endTerminated = "terminated"      // a person ended the backend, or the server did because the slot is lost
	endStopping   = "server_stopping" // the server wants to stop
	endTaken      = "slot_taken"      // another session has the slot
	endSilence    = "silence"         // nothing was heard for too long
	endUnreadable = "unreadable"      // a message that cannot be read, or a place that the slot cannot get past
	endError      = "server_error"    // another error of the server
	endConnection = "connection"      // the connection broke
)

// Ends are all the ways in which a session can end.
var Ends = []string{
	endClosed, endTerminated, endStopping, endTaken, endSilence, endUnreadable, endError, endConnection,
}

// operatorIntervention is the class of the errors with which a server ends a
// session at somebody's wish.
const operatorIntervention = "57P"

// endOf is how a session ended.
func endOf(err error) string {
	_, column := errors.AsType[*ColumnError](err)
	_, gap := errors.AsType[*GapError](err)
	code := pgtext.SQLState(err)
	switch {
	case errors.Is(err, ErrClosed):
		return endClosed
	case errors.Is(err, errServerStopping), errors.Is(err, errStreamEnded):
		return endStopping
	case errors.Is(err, errSlotTaken):
		return endTaken
	case errors.Is(err, errSilent):
		return endSilence
	case column, gap, errors.Is(err, errMalformed):
		return endUnreadable
	case strings.HasPrefix(code, operatorIntervention):
		return endTerminated
	case code != "":
		return endError
	}
	return endConnection
}

// lossMissing is the loss of a slot that somebody dropped, or that a failover did
// not bring along, and lossUnknown that of one whose server does not say why, or
// says what this program does not know.
const (
	lossMissing = "missing"
	lossUnknown = "unknown"
)

// Losses are the reasons for which a slot can be lost. Beside the two above they
// are the server's own, which it tells from 17 on.
var Losses = []string{lossMissing, "wal_removed", "rows_removed", "wal_level_insufficient", "idle_timeout", lossUnknown}

// loss is why the slot is not usable.
func (s slot) loss() string {
	switch {
	case !s.exists:
		return lossMissing
	case slices.Contains(Losses, s.reason):
		return s.reason
	}
	return lossUnknown
}
