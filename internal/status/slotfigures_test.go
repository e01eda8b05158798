package status_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/schema"
)

func (b bundle) version(t *testing.T) (number int) {
	t.Helper()
	if err := b.conn.QueryRow(t.Context(), `select current_setting('server_version_num')::int`).Scan(&number); err != nil {
		t.Fatal(err)
	}
	return number
}

func (b bundle) awaitFigures(t *testing.T, judge func(*status.Figures) error) {
	t.Helper()
	pgtest.Eventually(t, time.Minute, func() error { return judge(b.figures(t)) })
}

// A transaction that is larger than the memory for decoding is spilled to disk, and
// the catalog's horizon stays behind while nobody confirms.
func TestReadFigures_OfASlot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.execute(t, `select pg_create_logical_replication_slot($1, 'pgoutput')`, b.slot)
	b.execute(t, `set logical_decoding_work_mem = '64kB'`)
	b.execute(t, `insert into outbox.messages (key, queue, payload) select i::text, 'q', '{}' from generate_series(1, 5000) i`)
	for range 3 {
		b.execute(t, `select pg_current_xact_id()`)
	}
	b.execute(t, `select count(*) from pg_logical_slot_peek_binary_changes($1, null, null, 'proto_version', '1', 'publication_names', (select pubname::text from pg_publication))`, b.slot)
	b.awaitFigures(t, func(f *status.Figures) error {
		r := &f.Replication
		switch {
		case r.CatalogXmin == nil || r.CatalogAge == nil || *r.CatalogAge < 3:
			return fmt.Errorf("the horizon is unknown or near: %+v", r)
		case r.SpilledTransactions == nil || *r.SpilledTransactions == 0 || *r.SpilledBytes < 5000 || *r.DecodedBytes < *r.SpilledBytes:
			return fmt.Errorf("nothing was spilled: %+v", r)
		case (r.InactiveSince != nil) != (b.version(t) >= 170000), r.FailoverReady != nil:
			return fmt.Errorf("got %+v", r)
		}
		return nil
	})
}

// What a session of the relay writes is known from Postgres 18 on, and to the
// relay's own role.
func TestReadFigures_Writers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	config := b.conn.Config().Copy()
	cfg := schema.GrantsConfig{Schema: "outbox", Database: config.Database, Relay: "relay_" + config.Database}
	var grants strings.Builder
	if err := schema.Grants(&grants, cfg); err != nil {
		t.Fatal(err)
	}
	role := pgx.Identifier{cfg.Relay}.Sanitize()
	b.execute(t, grants.String())
	b.execute(t, `alter role `+role+` login`)
	defer b.execute(t, `drop role `+role)
	defer b.execute(t, `drop owned by `+role)

	config.User = cfg.Relay
	reader, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close(context.Background())
	config.RuntimeParams["application_name"] = "outbox-relay " + b.slot
	writer, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close(context.Background())
	if b.version(t) < 180000 {
		if writers := (bundle{reader, b.slot}).figures(t).Writers; writers != nil {
			t.Errorf("got %+v", writers)
		}
		return
	}
	(bundle{reader, b.slot}).awaitFigures(t, func(f *status.Figures) error {
		_, err := writer.Exec(t.Context(), `insert into outbox.dispatched (message_id, dispatched_at, attempts)
			select coalesce(max(message_id), 0) + 1, now(), 1 from outbox.dispatched`)
		if err != nil {
			return err
		}
		if len(f.Writers) != 1 || f.Writers[0].WALBytes < 500 {
			return fmt.Errorf("got %+v", f.Writers)
		}
		return nil
	})
}

// The primary can tell whether its standby takes the slot along.
func TestReadFigures_FailoverReady(t *testing.T) {
	t.Parallel()
	primary := pgtest.New(t)
	url := primary.Migrated(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	b := bundle{conn, "followed"}
	defer func() { _ = b.conn.Close(context.Background()) }()
	if b.version(t) < 170000 {
		b.execute(t, `select pg_create_logical_replication_slot($1, 'pgoutput')`, b.slot)
		if r := b.figures(t).Replication; r.Failover != nil || r.FailoverReady != nil {
			t.Errorf("got %+v", r)
		}
		return
	}
	b.execute(t, `select pg_create_logical_replication_slot($1, 'pgoutput', failover => true)`, b.slot)
	if r := b.figures(t).Replication; !*r.Failover || r.FailoverReady != nil {
		t.Errorf("without a standby: %+v", r)
	}
	_ = b.conn.Close(t.Context())
	standby := pgtest.NewStandby(t, primary)
	if b.conn, err = pgx.Connect(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	expect := func(want bool) {
		t.Helper()
		b.awaitFigures(t, func(f *status.Figures) error {
			if ready := f.Replication.FailoverReady; ready == nil || *ready != want {
				return fmt.Errorf("ready is %v, want %v", ready, want)
			}
			return nil
		})
	}
	expect(true)
	if err := standby.Stop("fast"); err != nil {
		t.Fatal(err)
	}
	expect(false)
	b.execute(t, `alter system set synchronized_standby_slots = ''`)
	b.execute(t, `select pg_reload_conf()`)
	expect(false)
}
