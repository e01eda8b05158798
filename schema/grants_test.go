package schema_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/schema"
)

func grants(t *testing.T, cfg schema.GrantsConfig) string {
	t.Helper()
	var sql strings.Builder
	if err := schema.Grants(&sql, cfg); err != nil {
		t.Fatal(err)
	}
	return sql.String()
}

// apply runs SQL the way psql does.
func apply(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
}

// roles are the roles of one test, made and given their rights by what
// Grants prints. Roles belong to the cluster, so their names hold the database's.
type roles struct {
	url string
	cfg schema.GrantsConfig
}

// newRoles goes the way of the documentation: roles, migration by the owner,
// rights.
func newRoles(t *testing.T, names schema.Config, odd string) roles {
	t.Helper()
	url := pgtest.Database(t)
	admin := connect(t, url)
	database := admin.Config().Database
	r := roles{url: url, cfg: schema.GrantsConfig{
		Schema: names.Schema, Database: database,
		Owner: "owner " + database + odd, Application: "app " + database + odd,
		Relay: "relay " + database + odd, Monitoring: "mon " + database + odd,
		Operator: "op " + database + odd,
	}}
	t.Cleanup(func() { r.drop(t) })
	exec(t, admin, `create table business (a int); insert into business values (1)`)

	part := r.cfg
	part.Part = schema.PartRoles
	apply(t, admin, grants(t, part))
	config := parse(t, url)
	config.RuntimeParams["role"] = r.cfg.Owner
	if _, err := schema.Migrate(t.Context(), config, names, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	part.Part = schema.PartRights
	apply(t, admin, grants(t, part))
	return r
}

func (r roles) drop(t *testing.T) {
	ctx := context.Background()
	admin, err := pgx.Connect(ctx, r.url)
	if err != nil {
		t.Error(err)
		return
	}
	defer admin.Close(ctx)
	for _, role := range []string{r.cfg.Owner, r.cfg.Application, r.cfg.Relay, r.cfg.Monitoring, r.cfg.Operator} {
		name := pgx.Identifier{role}.Sanitize()
		if _, err := admin.Exec(ctx, `drop owned by `+name+` cascade`); err != nil {
			t.Errorf("drop owned by %s: %v", name, err)
		}
		if _, err := admin.Exec(ctx, `drop role `+name); err != nil {
			t.Errorf("drop role %s: %v", name, err)
		}
	}
}

// as is a connection with a role's rights and no others.
func (r roles) as(t *testing.T, role string) *pgx.Conn {
	t.Helper()
	if role == r.cfg.Relay || role == r.cfg.Monitoring {
		config := parse(t, r.url)
		config.User = role
		return connectConfig(t, config)
	}
	conn := connect(t, r.url)
	exec(t, conn, `set session authorization `+pgx.Identifier{role}.Sanitize())
	return conn
}

// Each role can do its job and nothing else.
func TestGrants_EachRoleCanDoItsJobAndNothingElse(t *testing.T) {
	t.Parallel()
	r := newRoles(t, standard, "")
	admin := connect(t, r.url)
	exec(t, admin, `select outbox.enqueue('there', 'q', '{"secret": 1}');
		insert into outbox.queues (queue) values ('q');
		insert into outbox.relays (slot, epoch) values ('s', 1);
		insert into outbox.dispatched (message_id, attempts) values (1, 1);
		insert into outbox.claims (consumer, event_id, expires_at, result) values ('c', 'there', now() - interval '1 day', '{"secret": 1}')`)

	for _, job := range []struct {
		name, role  string
		can, cannot []string
	}{
		{
			"application", r.cfg.Application,
			[]string{
				`insert into outbox.messages (key, queue, ordering_key, payload, headers, delay_seconds, priority, deliver_at)
					values ('k', 'q', 'o', '{}', '{}', 1, 1, now()) on conflict (key) do nothing returning id, key`,
				`select outbox.enqueue('k', 'q', '{}')`,
				`select outbox.enqueue('there', 'q', '{}')`,
				`select id from outbox.messages where key = 'there'`,
				`delete from outbox.messages where key = 'there'`,
				`delete from outbox.messages where id = 1 returning key`,
				`select outbox.claim('c', 'e', '1 hour')`,
				`select outbox.claim('c', 'there', '1 hour')`,
				`insert into outbox.claims (consumer, event_id, expires_at, result) values ('c', 'e', now(), '{}') on conflict do nothing`,
				`update outbox.claims set result = '{}', expires_at = now() where consumer = 'c' and event_id = 'there'`,
				`select result from outbox.claims where consumer = 'c' and event_id = 'there'`,
			},
			[]string{
				`select payload from outbox.messages`,
				`select * from outbox.messages`,
				`select key, queue from outbox.messages`,
				`update outbox.messages set payload = '{}'`,
				`insert into outbox.messages (created_at, key, queue, payload) values ('1999-01-01', 'k', 'q', '{}')`,
				`truncate outbox.messages`,
				`delete from outbox.messages where payload = '{}'`,
				`select outbox.record_position('s', 1, '0/1')`,
				`select from outbox.dispatched`,
				`insert into outbox.dispatched (message_id, attempts) values (2, 1)`,
				`delete from outbox.dispatched`,
				`select from outbox.deferred`,
				`delete from outbox.deferred`,
				`select from outbox.dead_letters`,
				`delete from outbox.dead_letters`,
				`select from outbox.queues`,
				`select from outbox.envelopes`,
				`update outbox.queues set paused = true`,
				`delete from outbox.envelopes`,
				`update outbox.relays set epoch = 9`,
				`delete from outbox.claims`,
				`update outbox.claims set event_id = 'x'`,
				`insert into outbox.schema_version values (9)`,
				`select from outbox.message_status`,
				`create table outbox.mine (a int)`,
				`select from business`,
				`select pg_create_logical_replication_slot('app_slot', 'pgoutput')`,
			},
		},
		{
			"relay", r.cfg.Relay,
			[]string{
				`select id, created_at, key, queue, ordering_key, payload, headers, delay_seconds, priority, deliver_at from outbox.messages`,
				`insert into outbox.dispatched (message_id, attempts, queue_message_id) values (1, 1, 'm') on conflict (message_id) do nothing`,
				`insert into outbox.deferred (message_id, queue, reason, xid) values (1, 'q', 'transient', '7')`,
				`update outbox.deferred set attempts = attempts + 1, not_before = now() where message_id = 1`,
				`delete from outbox.deferred where message_id = 1`,
				`insert into outbox.dead_letters (message_id, reason, attempts) values (1, 'refused', 1)`,
				`update outbox.dead_letters set last_error = 'x'`,
				`delete from outbox.dead_letters where message_id = 1`,
				`insert into outbox.relays (slot, epoch) values ('s', 1) on conflict (slot) do update set epoch = outbox.relays.epoch + 1 returning epoch`,
				`insert into outbox.relays (slot, system_identifier, timeline)
					select 'new', s.system_identifier, c.timeline_id from pg_control_system() s, pg_control_checkpoint() c`,
				`select outbox.record_position('s', 1, '0/1')`,
				`select * from outbox.queues`,
				`insert into outbox.envelopes (queue, first_message, envelope) values ('q', 1, 'none')
					on conflict (queue, first_message) do update set envelope = excluded.envelope`,
				`delete from outbox.envelopes where first_message > 9`,
				`select * from outbox.message_status`,
				`select * from outbox.schema_version`,
				`select last_value from outbox.messages_id_seq`,
				`delete from outbox.messages m using outbox.dispatched d where d.message_id = m.id`,
				`delete from outbox.dispatched where ctid = any (array(select ctid from outbox.dispatched limit 1))`,
				`insert into outbox.queues (queue, paused) values ('q', true) on conflict (queue) do update set paused = excluded.paused`,
				`insert into outbox.queues (queue, paused, paused_by, paused_reason) values ('q', true, 'page', 'r') on conflict (queue) do update
					set paused = true, paused_by = excluded.paused_by, paused_reason = excluded.paused_reason`,
				`insert into outbox.queues (queue, paused) values ('x', true) on conflict (queue) do update set paused = excluded.paused`,
				`delete from outbox.claims where expires_at < now()`,
				`delete from outbox.claims where ctid = any (array(select ctid from outbox.claims
					where expires_at < now() order by expires_at limit 10 for update skip locked))`,
				`select count(*) from pg_locks l join pg_stat_activity a using (pid) where a.query <> '' and l.relation = 'outbox.messages'::regclass`,
			},
			[]string{
				`update outbox.messages set payload = '{}'`,
				`select from outbox.messages for update`,
				`insert into outbox.messages (key, queue, payload) values ('k', 'q', '{}')`,
				`select outbox.enqueue('k', 'q', '{}')`,
				`truncate outbox.messages`,
				`select nextval('outbox.messages_id_seq')`,
				`update outbox.dispatched set attempts = 2`,
				`truncate outbox.dispatched`,
				`delete from outbox.relays`,
				`update outbox.queues set max_in_flight = 1`,
				`update outbox.queues set queue = 'y'`,
				`update outbox.queues set paused_at = '1999-01-01'`,
				`insert into outbox.queues (queue, envelope) values ('x', 'cloudevents')`,
				`delete from outbox.queues`,
				`select result from outbox.claims`,
				`select event_id from outbox.claims`,
				`update outbox.claims set expires_at = now()`,
				`select outbox.claim('c', 'e', '1 hour')`,
				`insert into outbox.schema_version values (9)`,
				`create table outbox.mine (a int)`,
				`alter table outbox.messages disable trigger all`,
				`alter publication outbox_relay set (publish = 'update')`,
				`select from business`,
				`create role somebody`,
			},
		},
		{
			"monitoring", r.cfg.Monitoring,
			[]string{
				`select state, count(*), min(created_at) from outbox.message_status group by state`,
				`select * from outbox.dispatched`,
				`select reason, last_error from outbox.deferred`,
				`select reason, last_error from outbox.dead_letters`,
				`select * from outbox.withdrawn`,
				`select * from outbox.queues`,
				`select * from outbox.envelopes`,
				`select * from outbox.relays`,
				`select * from outbox.schema_version`,
				`select min(expires_at) from outbox.claims`,
				`select slot_name, confirmed_flush_lsn from pg_replication_slots`,
				`select count(*) from pg_stat_activity where query is not null`,
			},
			[]string{
				`select from outbox.messages`,
				`select payload from outbox.messages`,
				`select event_id from outbox.claims`,
				`select result from outbox.claims`,
				`insert into outbox.dispatched (message_id, attempts) values (2, 1)`,
				`delete from outbox.deferred`,
				`delete from outbox.dead_letters`,
				`update outbox.queues set paused = true`,
				`update outbox.relays set epoch = 9`,
				`select outbox.enqueue('k', 'q', '{}')`,
				`select outbox.claim('c', 'e', '1 hour')`,
				`select outbox.record_position('s', 1, '0/1')`,
				`select pg_create_logical_replication_slot('mon_slot', 'pgoutput')`,
				`select from business`,
			},
		},
		{
			"operator", r.cfg.Operator,
			[]string{
				`select state, count(*) from outbox.message_status group by state`,
				`select * from outbox.relays`,
				`select min(expires_at) from outbox.claims`,
				`insert into outbox.deferred (message_id, queue, reason, xid) values (1, 'q', 'redrive', '7')`,
				`update outbox.deferred set not_before = now()`,
				`update outbox.dead_letters set reason = 'discarded'`,
				`delete from outbox.dead_letters`,
				`insert into outbox.queues (queue, paused, envelope) values ('q', true, 'none') on conflict (queue) do update set max_in_flight = 1`,
			},
			[]string{
				`select from outbox.messages`,
				`select payload from outbox.messages`,
				`delete from outbox.messages`,
				`select event_id from outbox.claims`,
				`insert into outbox.dispatched (message_id, attempts) values (2, 1)`,
				`delete from outbox.dispatched`,
				`delete from outbox.queues`,
				`update outbox.relays set epoch = 9`,
				`select outbox.enqueue('k', 'q', '{}')`,
				`select outbox.record_position('s', 1, '0/1')`,
				`create table outbox.mine (a int)`,
				`select from business`,
				`select pg_create_logical_replication_slot('op_slot', 'pgoutput')`,
			},
		},
		{
			"owner", r.cfg.Owner,
			[]string{
				`alter table outbox.messages add column tenant text`,
				`create table outbox.another (a int)`,
				`alter publication outbox_relay set (publish_via_partition_root = false)`,
				`insert into outbox.queues (queue, paused) values ('x', true)`,
				`update outbox.queues set paused = true`,
				`grant select on outbox.queues to public`,
				`select * from outbox.message_status`,
			},
			[]string{
				`create schema another`,
				`create publication another for table outbox.queues`,
				`alter publication outbox_relay add table business`,
				`select from business`,
				`create role somebody`,
				`select pg_create_logical_replication_slot('owner_slot', 'pgoutput')`,
			},
		},
	} {
		t.Run(job.name, func(t *testing.T) {
			conn := r.as(t, job.role)
			for _, sql := range job.can {
				if err := tried(t, conn, sql); err != nil {
					t.Errorf("cannot %s: %v", sql, err)
				}
			}
			for _, sql := range job.cannot {
				if err := tried(t, conn, sql); refused(err).Code != "42501" {
					t.Errorf("can %s: got %v, want SQLSTATE 42501", sql, err)
				}
			}
		})
	}
}

// tried runs a statement and takes it back.
func tried(t *testing.T, conn *pgx.Conn, sql string) error {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = tx.Exec(t.Context(), sql)
	if rollback := tx.Rollback(t.Context()); rollback != nil {
		t.Fatal(rollback)
	}
	return err
}

func TestGrants_TheRelayReadsTheWAL(t *testing.T) {
	t.Parallel()
	r := newRoles(t, standard, "")
	conn := r.as(t, r.cfg.Relay)
	slot := "relay_" + r.cfg.Database
	exec(t, conn, `select pg_create_logical_replication_slot($1, 'pgoutput')`, slot)
	exec(t, connect(t, r.url), `select outbox.enqueue('k', 'q', '{}')`)
	got := query[int](t, conn, `select count(*) from pg_logical_slot_get_binary_changes($1, null, null,
		'proto_version', '1', 'publication_names', 'outbox_relay')`, slot)
	if got == 0 {
		t.Error("the slot gives nothing")
	}
	exec(t, conn, `select pg_drop_replication_slot($1)`, slot)
}

// SCH-08: names that need quoting, for roles as well, applied twice.
func TestGrants_NamesAndRepetition(t *testing.T) {
	t.Parallel()
	names := schema.Config{Schema: `My "Schema"; --`, Publication: "pub"}
	r := newRoles(t, names, ` it's "odd" $body$ \ ;`)
	apply(t, connect(t, r.url), grants(t, r.cfg))
	conn := r.as(t, r.cfg.Application)
	if id := query[*int64](t, conn, `select "My ""Schema""; --".enqueue('k', 'q', '{}')`); id == nil {
		t.Error("the application wrote nothing")
	}
	if err := schema.Check(t.Context(), r.as(t, r.cfg.Relay), names.Schema); err != nil {
		t.Error(err)
	}
}

// On RDS nobody can give the role attribute; a membership stands for it.
func TestGrants_RDS(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	admin := connect(t, url)
	relay := "rds relay " + admin.Config().Database
	exec(t, admin, `create role rds_replication`)
	t.Cleanup(func() {
		ctx := context.Background()
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(ctx)
		for _, sql := range []string{`drop owned by "%s"`, `drop role "%s"`} {
			if _, err := conn.Exec(ctx, fmt.Sprintf(sql, relay)); err != nil {
				t.Error(err)
			}
		}
		if _, err := conn.Exec(ctx, `drop role rds_replication`); err != nil {
			t.Error(err)
		}
	})
	apply(t, admin, grants(t, schema.GrantsConfig{Schema: "outbox", Database: admin.Config().Database, Relay: relay, Vendor: "rds"}))
	if !query[bool](t, admin, `select pg_has_role($1, 'rds_replication', 'usage') and not rolreplication from pg_roles where rolname = $1`, relay) {
		t.Error("the relay has no rds_replication, or has the attribute")
	}
}

// A relay that polls needs no right to replicate.
func TestGrants_Poll(t *testing.T) {
	t.Parallel()
	sql := grants(t, schema.GrantsConfig{Schema: "outbox", Database: "app", Relay: "relay", Poll: true})
	if strings.Contains(sql, "replication") || !strings.Contains(sql, "grant pg_read_all_stats") || !strings.Contains(sql, "on sequence") {
		t.Errorf("got\n%s", sql)
	}
}

// A role without a name does not appear; a part holds only its own statements.
func TestGrants_PartsAndRoles(t *testing.T) {
	t.Parallel()
	all := schema.GrantsConfig{
		Schema: "outbox", Database: "app", Owner: schema.DefaultOwner, Application: schema.DefaultApplication,
		Relay: schema.DefaultRelay, Monitoring: schema.DefaultMonitoring, Operator: schema.DefaultOperator,
	}
	for _, test := range []struct {
		name         string
		change       func(*schema.GrantsConfig)
		with, absent []string
	}{
		{"everything", func(*schema.GrantsConfig) {}, []string{"create role", "outbox_owner", "outbox_app", "outbox_relay", "outbox_monitor", "outbox_operator", "replication", "grant select"}, nil},
		{"roles", func(c *schema.GrantsConfig) { c.Part = schema.PartRoles }, []string{"create role"}, []string{"grant usage", "revoke"}},
		{"rights", func(c *schema.GrantsConfig) { c.Part = schema.PartRights }, []string{"grant usage", "revoke create"}, []string{"create role"}},
		{"without an owner", func(c *schema.GrantsConfig) { c.Owner = "" }, nil, []string{"outbox_owner", `""`, "create on database"}},
		{"without monitoring", func(c *schema.GrantsConfig) { c.Monitoring = "" }, nil, []string{"outbox_monitor", `""`, "pg_monitor"}},
		{"without operators", func(c *schema.GrantsConfig) { c.Operator = "" }, nil, []string{"outbox_operator", `""`}},
		{"without a relay", func(c *schema.GrantsConfig) { c.Relay = "" }, nil, []string{"outbox_relay", `""`, "alter role"}},
		{"without an application", func(c *schema.GrantsConfig) { c.Application = "" }, nil, []string{"outbox_app", `""`}},
	} {
		cfg := all
		test.change(&cfg)
		sql := grants(t, cfg)
		for _, text := range test.with {
			if !strings.Contains(sql, text) {
				t.Errorf("%s: no %q in\n%s", test.name, text, sql)
			}
		}
		for _, text := range test.absent {
			if strings.Contains(sql, text) {
				t.Errorf("%s: %q in\n%s", test.name, text, sql)
			}
		}
	}
}

func TestGrants_ReportsEverythingThatIsWrong(t *testing.T) {
	t.Parallel()
	err := schema.GrantsConfig{Database: "d", Owner: "$role$", Relay: "a\nb", Vendor: "acme", Part: "some"}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"schema", "$role$", `a\nb`, "acme", "some"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
	if err := schema.Grants(&strings.Builder{}, schema.GrantsConfig{}); err == nil {
		t.Error("grants are printed for no schema")
	}
}
