package relay

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// statements are the relay's SQL, with the schema's name put in.
type statements struct {
	takeOver, record, copy, dispatched, dead, undefer, known, reconcile, reconciled, backlog, horizon string
}

func newStatements(schema string) statements {
	in := func(sql string) string {
		return strings.ReplaceAll(sql, "outbox.", pgx.Identifier{schema}.Sanitize()+".")
	}
	return statements{
		takeOver:   in(sqlTakeOver),
		record:     in(sqlRecord),
		copy:       in(sqlCopy),
		dispatched: in(sqlDispatched),
		dead:       in(sqlDead),
		undefer:    in(sqlUndefer),
		known:      in(sqlKnown),
		reconcile:  in(sqlReconcile),
		reconciled: in(sqlReconciled),
		backlog:    in(sqlBacklog),
		horizon:    in(sqlHorizon),
	}
}

// Locks the slot's row of relays until commit.
const sqlTakeOver = `
insert into outbox.relays as r (slot, system_identifier, timeline, confirmed_lsn, epoch, holder, version)
select $1, s.system_identifier, c.timeline_id, $4::pg_lsn, 1, $2, $3
from pg_control_system() s, pg_control_checkpoint() c
on conflict (slot) do update set
	system_identifier = excluded.system_identifier,
	timeline = excluded.timeline,
	epoch = r.epoch + 1,
	holder = excluded.holder,
	version = excluded.version,
	reconciled_at = case when $5 then null else r.reconciled_at end,
	updated_at = now()
returning epoch, reconciled_at is not null`

// Raises OR001 when the epoch is another one.
const sqlRecord = `select outbox.record_position($1, $2, $3::pg_lsn)`

const sqlCopy = `select outbox.record_position(%s, %d, %s);
copy outbox.dispatched (message_id, queue_message_id, attempts, possible_duplicate) from stdin`

const sqlDispatched = `
insert into outbox.dispatched (message_id, queue_message_id, attempts, possible_duplicate)
select id, queue_message_id, attempts, false
from unnest($1::bigint[], $2::text[], $3::int[]) as t (id, queue_message_id, attempts)
on conflict (message_id) do nothing`

const sqlDead = `
insert into outbox.dead_letters (message_id, reason, attempts, last_status, last_code, last_error, request_id)
select id, reason, attempts, status, code, text, request_id
from unnest($1::bigint[], $2::text[], $3::int[], $4::int[], $5::text[], $6::text[], $7::text[])
	as t (id, reason, attempts, status, code, text, request_id)
on conflict (message_id) do nothing`

const sqlUndefer = `delete from outbox.deferred where message_id = any ($1::bigint[])`

// Three look-ups by primary key for each message.
const sqlKnown = `
select id from unnest($1::bigint[]) as id
where exists (select from outbox.dispatched d where d.message_id = id)
	or exists (select from outbox.dead_letters d where d.message_id = id)
	or exists (select from outbox.deferred d where d.message_id = id)`

// Reads all of messages by its primary key, next to the primary keys of the
// outcomes; takes no lock that an application waits for.
const sqlReconcile = `
insert into outbox.deferred (message_id, queue, ordering_key, reason, attempts, not_before)
select m.id, coalesce(m.queue, ''), m.ordering_key, 'recovered', 0, now()
from outbox.messages m
where not exists (select from outbox.dispatched d where d.message_id = m.id)
	and not exists (select from outbox.dead_letters d where d.message_id = m.id)
	and not exists (select from outbox.deferred d where d.message_id = m.id)
order by m.id
on conflict (message_id) do nothing`

const sqlReconciled = `
update outbox.relays set reconciled_at = now(), updated_at = now() where slot = $1 and epoch = $2`

// In commit order, as far as the table knows it.
const sqlBacklog = `
select d.position, d.message_id, m.id is not null,
	coalesce(m.key, ''), coalesce(m.queue, ''), coalesce(m.ordering_key, ''),
	coalesce(m.payload::text, ''), coalesce(m.headers::text, ''),
	m.delay_seconds, m.priority, m.deliver_at, m.created_at
from outbox.deferred d left join outbox.messages m on m.id = d.message_id
where d.position > $1
order by d.position
limit $2`

// Reads the last entry of three primary keys.
const sqlHorizon = `
select greatest(0, (select max(message_id) from outbox.dispatched),
	(select max(message_id) from outbox.dead_letters), (select max(message_id) from outbox.deferred))`
