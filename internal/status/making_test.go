package status_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/status"
)

// A slot that is being made looks as if somebody had it. Both reports say what it
// waits for instead.
func TestRead_SlotIsBeingMade(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t) // a slot is made here when nobody else writes
	b := bundle{pgtest.Connect(t, cluster.Migrated(t)), "slot"}
	// What the relay of before left, and the announcement of the next one.
	b.execute(t, `insert into outbox.relays (slot, epoch, holder, updated_at) values ('slot', 3, 'db1:4711', '2026-03-01 09:00:00+00')`)
	writer := pgtest.Connect(t, cluster.URL("postgres"))
	if _, err := writer.Exec(t.Context(), `begin; create table a (); prepare transaction 'settlement-4711'`); err != nil {
		t.Fatal(err)
	}
	maker := pgtest.Connect(t, b.conn.Config().ConnString())
	made := make(chan error, 1)
	go func() {
		_, err := maker.Exec(context.Background(), `select pg_create_logical_replication_slot('slot', 'pgoutput')`)
		made <- err
	}()
	var report *status.Report
	pgtest.Eventually(t, 20*time.Second, func() error {
		if report = b.read(t); report.Slot == nil || report.Slot.Making == nil {
			return errors.New("the slot is not there yet: " + report.Summary)
		}
		return nil
	})
	pid := maker.PgConn().PID()
	expectSummary(t, report,
		"no relay is streaming: its slot is being made since 2026-03-01T09:00:00Z (process ",
		fmt.Sprintf(" (process %d) and waits for prepared transaction 'settlement-4711' (database postgres, role postgres), open for ", pid))
	if strings.Contains(report.Summary, "active") || report.AtWork() {
		t.Errorf("says that a relay is at work: %s", report.Summary)
	}
	var text strings.Builder
	if err := report.Print(&text); err != nil {
		t.Fatal(err)
	}
	wantParts(t, text.String(), fmt.Sprintf("being made by process %d", pid), "waits for", "rollback prepared 'settlement-4711'")

	slot, err := status.ReadSlot(t.Context(), b.conn, "outbox", "slot")
	if err != nil {
		t.Fatal(err)
	}
	text.Reset()
	if err := slot.Print(&text); err != nil {
		t.Fatal(err)
	}
	wantParts(t, text.String(), fmt.Sprintf(`slot "slot" is being made by process %d, which waits for prepared transaction`, pid), "commit prepared")
	if slot.Trouble != "" {
		t.Errorf("trouble: %s", slot.Trouble)
	}

	if _, err := writer.Exec(t.Context(), `rollback prepared 'settlement-4711'`); err != nil {
		t.Fatal(err)
	}
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	report = b.read(t)
	expectSummary(t, report, "no relay is streaming, ")
	if report.Slot.Making != nil {
		t.Errorf("is still being made: %+v", report.Slot.Making)
	}
}

func wantParts(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("lacks %q:\n%s", part, text)
		}
	}
}
