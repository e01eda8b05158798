package poll

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// statements are the SQL of a session, with the schema's name put in. Each runs
// in a transaction and a snapshot of its own.
type statements struct {
	page, rows string
	table      string // the qualified name of messages
}

func newStatements(schema string) statements {
	in := func(sql string) string {
		return strings.ReplaceAll(sql, "outbox.", pgx.Identifier{schema}.Sanitize()+".")
	}
	return statements{
		page: in(sqlPage), rows: in(sqlRows),
		table: pgx.Identifier{schema, "messages"}.Sanitize(),
	}
}

// Every statement finds its rows by a key, in a range of it or one by one. Tables
// that fill and empty within minutes mislead the planner, and a look must not
// become a scan of the table.
var keysOnly = map[string]string{"enable_seqscan": "off", "enable_bitmapscan": "off"}

// Reads catalogs and one row of the sequence; locks nothing that anybody waits
// for. The sequence is looked up each time, because a table may be replaced.
const sqlNumbers = `
select pg_catalog.pg_backend_pid(), $1::regclass::oid::bigint, coalesce(s.name, ''), coalesce(c.seqcache, 1),
	coalesce(pg_catalog.pg_sequence_last_value(s.name::regclass), 0)
from (select pg_catalog.pg_get_serial_sequence($1, 'id') as name) s
left join pg_catalog.pg_sequence c on c.seqrelid = s.name::regclass`

// Reads shared memory. It must run after the last number was read: who has no
// lock by then gets a higher one.
const sqlHolders = `
select l.virtualtransaction, coalesce(l.pid, 0)
from pg_catalog.pg_locks l
where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted and l.relation = $1::bigint::oid
	and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())`

// Of the numbers from $1 (not included) to $2, at most $3 that are in the table:
// the last one, how many, and which have no outcome. Reads that part of the
// primary key of messages, and no other of those of the outcomes, however they
// are joined. With $4 only what needs no order, without an ordering key and in a
// queue that is not one lane; and how many others there are. (That question is a
// scalar one: an EXISTS may be answered by hashing the whole table.)
const sqlPage = `
with page as materialized (
	select m.id from outbox.messages m where m.id > $1 and m.id <= $2 order by m.id limit $3
),
bound as materialized (select coalesce(max(p.id), 0) as last from page p),
one_lane as materialized (select array(select q.queue from outbox.queues q where q.ordering = 'queue' order by q.queue) as queues),
open as materialized (
	select p.id, not $4 or coalesce((
		select m.ordering_key is null and m.queue <> all ((select o.queues from one_lane o)::text[])
		from outbox.messages m where m.id = p.id), false) as goes
	from page p
	where not exists (select from outbox.dispatched o
			where o.message_id = p.id and o.message_id > $1 and o.message_id <= (select last from bound))
		and not exists (select from outbox.deferred o
			where o.message_id = p.id and o.message_id > $1 and o.message_id <= (select last from bound))
		and not exists (select from outbox.dead_letters o
			where o.message_id = p.id and o.message_id > $1 and o.message_id <= (select last from bound))
		and not exists (select from outbox.withdrawn o
			where o.message_id = p.id and o.message_id > $1 and o.message_id <= (select last from bound))
)
select (select last from bound), (select count(*) from page),
	coalesce(array_agg(o.id order by o.id) filter (where o.goes), '{}'), count(*) filter (where not o.goes)
from open o`

// Looks each message up by its primary key. One that is not there was deleted.
const sqlRows = `
select m.id, m.key, m.queue, coalesce(m.ordering_key, ''), m.payload::text, coalesce(m.headers::text, ''),
	m.delay_seconds, m.priority, m.deliver_at, m.created_at
from outbox.messages m where m.id = any ($1::bigint[]) order by m.id`

// Other roles' sessions show their state only to members of pg_read_all_stats.
const sqlWho = `
select coalesce(a.application_name, ''), coalesce(a.usename::text, ''), coalesce(a.state, ''), coalesce(a.xact_start::text, '')
from pg_catalog.pg_stat_activity a where a.pid = $1`

// The two statements of the lock. Its key is the one that an administrator finds
// in pg_locks (classid and objid are its halves).
const (
	lockKey   = `pg_catalog.hashtextextended($1::text collate "C", 0)`
	sqlLock   = `select pg_catalog.pg_try_advisory_lock(` + lockKey + `)`
	sqlUnlock = `select pg_catalog.pg_advisory_unlock(` + lockKey + `)`
)

// HolderSQL returns the pid of the session that holds the lock of a slot's name
// ($1), in the current database; no row if nobody does.
const HolderSQL = `
select l.pid from pg_catalog.pg_locks l, (select ` + lockKey + ` as key) k
where l.locktype = 'advisory' and l.objsubid = 1 and l.granted and l.mode = 'ExclusiveLock'
	and l.classid::bigint = (k.key >> 32) & 4294967295 and l.objid::bigint = k.key & 4294967295
	and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())`

// Whether a relay streams from the slot of that name, and whether there is one.
const sqlSlot = `select coalesce(s.active_pid, 0) from pg_catalog.pg_replication_slots s where s.slot_name = $1`

// Open to every role. The timeline is that of the WAL being written.
const sqlIdentity = `
select (select system_identifier::text from pg_catalog.pg_control_system()),
	case when r.recovering then 0
		else ('x' || left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::int
	end,
	pg_catalog.current_database()::text, pg_catalog.pg_backend_pid(), r.recovering,
	pg_catalog.current_setting('transaction_read_only') = 'on'
from (select pg_catalog.pg_is_in_recovery() as recovering) r`

// Whether row security hides messages from the role.
const sqlRowSecurity = `select pg_catalog.row_security_active($1::regclass), current_user::text`
