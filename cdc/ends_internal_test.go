package cdc

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestEndOf(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, test := range []struct {
		err  error
		want string
	}{
		{ErrClosed, endClosed},
		{&pgconn.PgError{Code: "57P01"}, endTerminated},
		{fmt.Errorf("%w: it asked", errServerStopping), endStopping},
		{fmt.Errorf("%w: %w", errServerStopping, &pgconn.PgError{Code: "57P03"}), endStopping},
		{errStreamEnded, endStopping},
		{errSlotTaken, endTaken},
		{errSilent, endSilence},
		{fmt.Errorf("after 0/1: %w", errMalformed), endUnreadable},
		{errors.Join(&ColumnError{Column: "key"}, io.EOF), endUnreadable},
		{&GapError{err: &pgconn.PgError{Code: codeUndefinedObject}}, endUnreadable},
		{&pgconn.PgError{Code: "XX000"}, endError},
		{fmt.Errorf("receive: %w", io.ErrUnexpectedEOF), endConnection},
	} {
		seen[test.want] = true
		if got := endOf(test.err); got != test.want || !slices.Contains(Ends, got) {
			t.Errorf("%v is %s, want %s", test.err, got, test.want)
		}
	}
	if len(seen) != len(Ends) {
		t.Errorf("%d of %d ends are tested", len(seen), len(Ends))
	}
}

func TestSlot_Loss(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]slot{
		"missing":      {},
		"wal_removed":  {exists: true, walStatus: "lost", reason: "wal_removed"},
		"idle_timeout": {exists: true, reason: "idle_timeout"},
		"unknown":      {exists: true, walStatus: "lost"},
	} {
		if got := s.loss(); got != want {
			t.Errorf("%+v is lost by %s, want %s", s, got, want)
		}
	}
	if got := (slot{exists: true, reason: "of a later version"}).loss(); got != lossUnknown {
		t.Errorf("a reason that is not in the list is %s", got)
	}
}

// From 19 on a server writes logical WAL as soon as it has a logical slot.
func TestServer_RequireLogical(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		version int
		level   string
		fits    bool
	}{
		{180000, "logical", true}, {180000, "replica", false}, {190000, "replica", true}, {190000, "minimal", false}, {190000, "logical", true},
	} {
		if err := (server{version: test.version, walLevel: test.level}).requireLogical(); (err == nil) != test.fits {
			t.Errorf("version %d with %s: %v", test.version, test.level, err)
		}
	}
}
