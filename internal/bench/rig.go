package bench

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/schema"
)

// rig is a Postgres with the outbox's tables and a slot that never moves: each
// run starts from a copy of that slot and so sees the same backlog.
type rig struct {
	cfg      Config
	cluster  *pgtest.Cluster
	url      string
	conn     *pgx.Conn
	postgres string
	slots    int
	filled   int // messages in the backlog

	orderingKey string // the expression that made their ordering keys
}

const baseSlot = "bench_base"

// newRig starts a server that does nothing by itself while something is
// measured.
func newRig(ctx context.Context, cfg Config) (*rig, error) {
	return startRig(ctx, cfg, map[string]string{
		"max_wal_size": "8GB", "checkpoint_timeout": "30min", "autovacuum": "off",
	})
}

// startRig starts a server with settings beside those that all measurements
// have in common.
func startRig(ctx context.Context, cfg Config, settings map[string]string) (*rig, error) {
	r := &rig{cfg: cfg}
	r.say("starting a throwaway Postgres")
	all := map[string]string{
		"fsync": "on", "synchronous_commit": "on", "shared_buffers": "256MB", "logical_decoding_work_mem": "64MB",
		"wal_sender_timeout": "60s", "log_replication_commands": "off",
	}
	maps.Copy(all, settings)
	cluster, err := pgtest.Start(ctx, pgtest.Options{Version: cfg.PostgresVersion, Settings: all})
	if err != nil {
		return nil, err
	}
	r.cluster = cluster
	r.url = cluster.URL("postgres")
	if err := r.prepare(ctx); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *rig) prepare(ctx context.Context) error {
	config, err := pgx.ParseConfig(r.url)
	if err != nil {
		return err
	}
	if _, err := schema.Migrate(ctx, config, schema.Config{Schema: "outbox", Publication: "outbox_relay"}, zap.NewNop()); err != nil {
		return err
	}
	if r.conn, err = pgx.ConnectConfig(ctx, config); err != nil {
		return err
	}
	return r.conn.QueryRow(ctx, "show server_version").Scan(&r.postgres)
}

func (r *rig) close() {
	if r.conn != nil {
		_ = r.conn.Close(context.Background())
	}
	_ = r.cluster.Close()
}

func (r *rig) say(format string, args ...any) {
	if r.cfg.Progress != nil {
		fmt.Fprintf(r.cfg.Progress, "bench: "+format+"\n", args...)
	}
}

// fill makes a backlog of n messages of 400 bytes behind a slot that stays
// where it is, ten messages a transaction. Every fourth message runs freely; the
// others share 1,000 ordering keys.
func (r *rig) fill(ctx context.Context, n int) error {
	return r.fillWith(ctx, n, `case when j % 4 > 0 then 'k' || (i * 10 + j) % 1000 end`)
}

// fillUnordered makes the same backlog without ordering keys.
func (r *rig) fillUnordered(ctx context.Context, n int) error {
	return r.fillWith(ctx, n, `null`)
}

func (r *rig) fillWith(ctx context.Context, n int, orderingKey string) error {
	if r.filled == n && r.orderingKey == orderingKey {
		return nil
	}
	r.say("writing a backlog of %d messages", n)
	var found bool
	if err := r.conn.QueryRow(ctx, `select exists (select from pg_replication_slots where slot_name = $1)`, baseSlot).Scan(&found); err != nil {
		return err
	}
	if found {
		if err := r.exec(ctx, `select pg_drop_replication_slot('`+baseSlot+`')`); err != nil {
			return err
		}
	}
	r.filled, r.orderingKey = n, orderingKey
	return r.exec(ctx,
		`truncate outbox.messages, outbox.dispatched, outbox.deferred, outbox.dead_letters`,
		`select pg_create_logical_replication_slot('`+baseSlot+`', 'pgoutput')`,
		`set synchronous_commit = off`,
		fmt.Sprintf(`do $$ begin
			for i in 1..%d loop
				insert into outbox.messages (key, queue, ordering_key, payload)
				select 'bench-' || i || '-' || j, 'bench', %s,
					jsonb_build_object('n', i, 'fill', repeat('x', 380))
				from generate_series(1, 10) j;
				commit;
			end loop;
		end $$`, n/10, orderingKey),
		`set synchronous_commit = on`,
		`vacuum analyze outbox.messages`, `checkpoint`)
}

func (r *rig) exec(ctx context.Context, statements ...string) error {
	for _, sql := range statements {
		if _, err := r.conn.Exec(ctx, sql); err != nil {
			first, _, _ := strings.Cut(strings.TrimSpace(sql), "\n")
			return fmt.Errorf("%s: %w", first, err)
		}
	}
	return nil
}

// copySlot makes a slot that starts where the backlog starts.
func (r *rig) copySlot(ctx context.Context) (string, error) {
	r.slots++
	slot := fmt.Sprintf("bench_%d", r.slots)
	return slot, r.exec(ctx,
		`truncate outbox.dispatched, outbox.deferred, outbox.dead_letters, outbox.relays`,
		fmt.Sprintf(`select pg_copy_logical_replication_slot('%s', '%s')`, baseSlot, slot),
		// A relay that meets a slot for the first time looks for messages that
		// the slot does not show. This one shows them all.
		fmt.Sprintf(`insert into outbox.relays (slot, epoch, reconciled_at) values ('%s', 0, now())`, slot),
		`checkpoint`)
}

// dropSlot drops a slot as soon as the server has noticed that its reader left.
func (r *rig) dropSlot(ctx context.Context, slot string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var left bool
		err := r.conn.QueryRow(ctx, `select active_pid is null from pg_replication_slots where slot_name = $1`, slot).Scan(&left)
		if err != nil {
			return err
		}
		if left {
			return r.exec(ctx, fmt.Sprintf(`select pg_drop_replication_slot('%s')`, slot))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("slot %s is still read: %w", slot, ctx.Err())
		}
	}
}

// settings are the relay's settings for one run.
func (r *rig) settings(ctx context.Context, slot string, env map[string]string) (*config.Config, error) {
	all := map[string]string{
		"DATABASE_URL": r.url, "RELAY_SLOT": slot, "RELAY_PUBLICATION": "outbox_relay",
		"INFRAI_API_KEY": "bench", "INFRAI_BASE_URL": "http://127.0.0.1:1",
	}
	maps.Copy(all, env)
	return config.Load(ctx, lookuper(all))
}

type lookuper map[string]string

func (l lookuper) Lookup(name string) (string, bool) {
	value, ok := l[name]
	return value, ok
}

func (l lookuper) Key(name string) string { return name }

// drain runs a relay in this process over the whole backlog and returns how
// long it took from its first message to its last durable mark.
func (r *rig) drain(ctx context.Context, cfg *config.Config, publisher relay.Publisher, counted *counter) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	run, stop := context.WithCancel(ctx)
	source := cdc.New(cfg.CDC, cfg.Database(), cfg.Replication(), r.cfg.Log)
	moving := relay.New(cfg.Relay, cfg.Database(), source, publisher, r.cfg.Log)
	ended := make(chan error, 1)
	go func() { ended <- moving.Run(run) }()

	var last time.Time
	err := func() error {
		select {
		case <-counted.all:
		case err := <-ended:
			ended <- nil
			return fmt.Errorf("the relay ended: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		}
		var err error
		last, err = r.awaitMarks(ctx)
		return err
	}()
	stop()
	if runErr := <-ended; err == nil {
		err = runErr
	}
	if err != nil {
		return 0, err
	}
	return last.Sub(counted.began()), nil
}

// awaitMarks waits until every message of the backlog is marked.
func (r *rig) awaitMarks(ctx context.Context) (time.Time, error) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		var marked int
		if err := r.conn.QueryRow(ctx, `select count(*) from outbox.dispatched`).Scan(&marked); err != nil {
			return time.Time{}, err
		}
		if marked >= r.filled {
			return time.Now(), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// runTimeout bounds one run.
const runTimeout = 5 * time.Minute
