package doctor_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// read streams from a slot until the test's end. It never says a word, which the
// server bears.
func read(t *testing.T, url, slot, publication, application string) *pgconn.PgConn {
	t.Helper()
	config, err := pgconn.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["replication"], config.RuntimeParams["application_name"] = "database", application
	config.RuntimeParams["wal_sender_timeout"] = "0"
	conn, err := pgconn.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	conn.Frontend().Send(&pgproto3.Query{String: "START_REPLICATION SLOT " + slot + " LOGICAL 0/0 (proto_version '1', publication_names '" + publication + "')"})
	if err := conn.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	return conn
}

// awaitReader waits until somebody has the slot.
func awaitReader(t *testing.T, url, slot string) {
	t.Helper()
	pgtest.Eventually(t, time.Minute, func() error {
		if !query[bool](t, url, "select active from pg_replication_slots where slot_name = $1", slot) {
			return errors.New("nobody reads the slot yet")
		}
		return nil
	})
}

// sayStatus sends a standby status with the time at which its sender says to have sent it.
func sayStatus(t *testing.T, conn *pgconn.PgConn, sent time.Time) {
	t.Helper()
	data := make([]byte, 34)
	data[0] = 'r'
	binary.BigEndian.PutUint64(data[25:], uint64(sent.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).Microseconds()))
	conn.Frontend().Send(&pgproto3.CopyData{Data: data})
	if err := conn.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
}

// The holder of the slot hangs, and the server keeps the slot for it.
func TestD12_TheReaderIsSilent(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	makeSlot(t, url, cfg.Slot, "pgoutput")
	conn := read(t, url, cfg.Slot, cfg.Publication, "a relay")
	heard := func(ago time.Duration) {
		sayStatus(t, conn, time.Now().Add(-ago))
		pgtest.Eventually(t, time.Minute, func() error {
			if !query[bool](t, url, "select exists (select from pg_stat_replication where pid = $1 and reply_time < now() - $2 * interval '1 second')",
				conn.PID(), ago.Seconds()-1) {
				return errors.New("the server has not heard it yet")
			}
			return nil
		})
	}
	heard(5 * time.Second)
	expect(t, cfg, "D12", doctor.Pass, "in use by pid ")
	heard(time.Hour)
	r := expect(t, cfg, "D12", doctor.Warn, "a relay", "heard nothing from it for 1h0m", "at once")
	if want := fmt.Sprintf("select pg_terminate_backend(%d);", conn.PID()); r.SQL != want {
		t.Errorf("the SQL is %q, want %q", r.SQL, want)
	}
	cfg.SenderTimeout = time.Hour
	expect(t, cfg, "D12", doctor.Warn, "because RELAY_WAL_SENDER_TIMEOUT is 1h0m0s")
	mend(t, url, r)
	awaitCheck(t, cfg, "D12", doctor.Pass, "no relay has used it yet") // once that session has ended
}

func TestD06_LongPatience(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, pgtest.Migrated(t))
	field, _ := reflect.TypeFor[cdc.Config]().FieldByName("WALSenderTimeout")
	_, usual, _ := strings.Cut(field.Tag.Get("env"), "default=")
	var err error
	if cfg.SenderTimeout, err = time.ParseDuration(usual); err != nil {
		t.Fatal(err)
	}
	expect(t, cfg, "D06", doctor.Pass)
	cfg.SenderTimeout = time.Hour
	expect(t, cfg, "D06", doctor.Warn, "RELAY_WAL_SENDER_TIMEOUT is 1h0m0s", "its default is "+usual)
}

func TestD12_SomebodyReads(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	makeSlot(t, url, cfg.Slot, "pgoutput")
	read(t, url, cfg.Slot, cfg.Publication, "a relay")
	awaitReader(t, url, cfg.Slot)
	expect(t, cfg, "D12", doctor.Pass, "in use by pid ", ", a relay, from 127.0.0.1")
}

func TestD12_NobodyReads(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	makeSlot(t, url, cfg.Slot, "pgoutput")
	expect(t, cfg, "D12", doctor.Pass, "no relay has used it yet")
	noteReconciled(t, url, cfg.Slot)
	expect(t, cfg, "D12", doctor.Pass, "not in use")
	execute(t, url, "update outbox.relays set holder = 'relay-1', updated_at = now() - interval '3 hours'")
	expect(t, cfg, "D12", doctor.Warn, "relay-1", "3h0m", "start the relay")
}

// OUT-06: somebody moved the slot.
func TestD19_Moved(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	makeSlot(t, url, cfg.Slot, "pgoutput")
	noteReconciled(t, url, cfg.Slot)
	expect(t, cfg, "D19", doctor.Pass, "no relay has noted one")
	execute(t, url, "update outbox.relays set closed_at = now(), confirmed_lsn = (select confirmed_flush_lsn from pg_replication_slots where slot_name = slot)")
	expect(t, cfg, "D19", doctor.Pass, "0 bytes")
	execute(t, url, "insert into outbox.messages (key, queue, payload) values ('a', 'orders', '{}')",
		"select pg_replication_slot_advance('"+cfg.Slot+"', pg_current_wal_lsn())")
	expect(t, cfg, "D19", doctor.Warn, "moved slot", "takes these messages from the table")
	execute(t, url, "update outbox.relays set closed_at = null")
	expect(t, cfg, "D19", doctor.Pass, "ahead")
	execute(t, url, "update outbox.relays set confirmed_lsn = pg_current_wal_insert_lsn() + 100")
	expect(t, cfg, "D19", doctor.Pass, "behind")
}

func TestD32_Backlog(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	execute(t, url, "insert into outbox.messages (key, queue, payload) values ('a', 'orders', '{}')")
	expect(t, cfg, "D32", doctor.Pass, "1 without outcome")
	execute(t, url, "insert into outbox.messages (key, queue, payload, created_at) values ('b', 'orders', '{}', now() - interval '1 hour')")
	expect(t, cfg, "D32", doctor.Warn, "2 without outcome", "1h0m", "start the relay")

	// Nobody is at work: the relay is down, or works on another server now.
	noteReconciled(t, url, cfg.Slot)
	expect(t, cfg, "D32", doctor.Warn, "no relay is at work here", "If the outbox was moved to another server, start none here", "Another cluster")
	makeSlot(t, url, cfg.Slot, "pgoutput")
	read(t, url, cfg.Slot, cfg.Publication, "a relay")
	awaitReader(t, url, cfg.Slot)
	expect(t, cfg, "D32", doctor.Warn, "a relay is at work: mend what fails here")
	execute(t, url, "update outbox.relays set system_identifier = 4711")
	expect(t, cfg, "D32", doctor.Warn, "before this server is adopted: D46")
}

// What a role may not see is not passed off as nothing.
func TestD33_MayNotSee(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	role := newRole(t, url, "")
	cfg := newConfig(t, url)
	cfg.Database = as(cfg.Database, role)
	quoted := pgx.Identifier{role}.Sanitize()
	expect(t, cfg, "D33", doctor.Skip, "grant pg_read_all_stats to "+quoted)
	execute(t, url, "grant pg_read_all_stats to "+quoted)
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), url)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), "revoke pg_read_all_stats from "+quoted); err != nil {
			t.Error(err)
		}
	})
	expect(t, cfg, "D33", doctor.Pass)
}
