package relay

import (
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/paused"
)

// statements are the relay's SQL, with the schema's name put in.
type statements struct {
	countStart, writeDown, acquit, redeem string

	cluster, takeOver, leave, record, copy, dispatched, dead, deferred, postponed, requeued, undefer      string
	lockRow, known, horizon, reconcile, reconciled, newSlot, queues, queueChunk, laneChunk, due, settings string
	sweepMark, writersOpen, candidates, recover, numbers                                                  string
	withdrawn, released, removeOld, removeClaims, removeWithdrawn, removeDiscarded                        string
}

func newStatements(schema string) statements {
	in := func(sql string) string {
		return strings.ReplaceAll(sql, "outbox.", pgx.Identifier{schema}.Sanitize()+".")
	}
	return statements{
		countStart: in(sqlCountStart),
		writeDown:  in(sqlWriteDown),
		acquit:     in(sqlAcquit),
		redeem:     in(sqlRedeem),

		cluster:    in(sqlCluster),
		takeOver:   in(sqlTakeOver),
		leave:      in(sqlLeave),
		record:     in(sqlRecord),
		copy:       in(sqlCopy),
		dispatched: in(sqlDispatched),
		dead:       in(sqlDead),
		deferred:   in(sqlDeferred),
		postponed:  in(sqlPostponed),
		requeued:   in(sqlRequeued),
		undefer:    in(sqlUndefer),
		lockRow:    in(sqlLockRow),
		known:      in(sqlKnown),
		horizon:    in(sqlHorizon),
		reconcile:  in(sqlReconcile),
		reconciled: in(sqlReconciled),
		newSlot:    in(sqlNewSlot),
		queues:     in(sqlQueues),
		queueChunk: in(sqlDeferredRows + sqlOfQueue),
		laneChunk:  in(sqlDeferredRows + sqlOfLane),
		due:        in(sqlDeferredRows + sqlOfDue),
		settings:   in(sqlSettings),

		sweepMark:    in(sqlSweepMark),
		writersOpen:  in(sqlWritersOpen),
		candidates:   in(sqlCandidates),
		recover:      in(sqlRecover),
		numbers:      in(sqlNumbers),
		removeOld:    in(sqlRemoveOld),
		removeClaims: in(sqlRemoveClaims),

		withdrawn:       in(sqlWithdrawn),
		released:        in(sqlReleased),
		removeWithdrawn: in(sqlRemoveWithdrawn),
		removeDiscarded: in(sqlRemoveDiscarded),
	}
}

// Locks the slot's row of relays until commit. Nothing but a relay moves a slot
// forward, so after a session that ended in good order it is where that left it.
// After a crash it may be farther than what was recorded last: WAL without
// messages is confirmed without a record. A relay that polls records no position.
const sqlTakeOver = `
with before as materialized (
	select confirmed_lsn, closed_at is not null and reconciled_at is not null and not $5 and confirmed_lsn <> '0/0' and $4::pg_lsn > confirmed_lsn as moved
	from outbox.relays where slot = $1
)
insert into outbox.relays as r (slot, system_identifier, timeline, confirmed_lsn, epoch, holder, version)
select $1, s.system_identifier, ` + sqlTimeline + `, $4::pg_lsn, 1, $2, $3
from pg_control_system() s
on conflict (slot) do update set
	system_identifier = excluded.system_identifier,
	timeline = excluded.timeline,
	epoch = r.epoch + 1,
	holder = excluded.holder,
	version = excluded.version,
	reconciled_at = case when $5 then null else r.reconciled_at end,
	closed_at = null,
	adopted_at = null,
	slot_moves = r.slot_moves + coalesce((select moved::int from before), 0),
	updated_at = now()
returning epoch, reconciled_at is not null, coalesce((select confirmed_lsn::text from before), ''),
	coalesce((select moved from before), false)`

// Only under our epoch.
const sqlLeave = `
update outbox.relays set confirmed_lsn = $3::pg_lsn, closed_at = now(), updated_at = now()
where slot = $1 and epoch = $2`

// Raises OR001 when the epoch is another one.
const sqlRecord = `select outbox.record_position($1, $2, $3::pg_lsn)`

const sqlCopy = `copy outbox.dispatched (message_id, queue_message_id, attempts, possible_duplicate) from stdin`

const sqlDispatched = `
insert into outbox.dispatched (message_id, queue_message_id, attempts, possible_duplicate)
select id, queue_message_id, attempts, duplicate
from unnest($1::bigint[], $2::text[], $3::int[], $4::bool[]) as t (id, queue_message_id, attempts, duplicate)
on conflict (message_id) do nothing`

const sqlDead = `
insert into outbox.dead_letters (message_id, reason, attempts, last_status, last_code, last_error, request_id, unknown_since)
select id, reason, attempts, status, code, text, request_id, unknown_since
from unnest($1::bigint[], $2::text[], $3::int[], $4::int[], $5::text[], $6::text[], $7::text[], $8::timestamptz[])
	as t (id, reason, attempts, status, code, text, request_id, unknown_since)
on conflict (message_id) do nothing`

const sqlUndefer = `delete from outbox.deferred where message_id = any ($1::bigint[])`

const sqlWithdrawn = `
insert into outbox.withdrawn (message_id) select unnest($1::bigint[]) on conflict (message_id) do nothing`

// Not one that somebody has just redriven.
const sqlReleased = `
delete from outbox.deferred where message_id = any ($1::bigint[]) and reason = 'dead_letter'`

// Four look-ups by primary key for each message. An outcome that is older than
// its message is that of another one, with the same number: somebody made the
// numbers begin again. A row of deferred serves whatever message has its number.
const sqlKnown = `
select id from unnest($1::bigint[], $2::timestamptz[]) as m (id, created_at)
where exists (select from outbox.dispatched d where d.message_id = id and d.dispatched_at >= coalesce(m.created_at, '-infinity'))
	or exists (select from outbox.dead_letters d where d.message_id = id and d.died_at >= coalesce(m.created_at, '-infinity'))
	or exists (select from outbox.deferred d where d.message_id = id)
	or exists (select from outbox.withdrawn w where w.message_id = id and w.withdrawn_at >= coalesce(m.created_at, '-infinity'))`

// The rows come in the order of the arrays, and get their position in that
// order: there is one writer.
const sqlDeferred = `
insert into outbox.deferred (message_id, xid, queue, ordering_key, reason, attempts, charged,
	not_before, last_status, last_error, unknown_since)
select id, xid::xid8, queue, ordering_key, reason, attempts, charged, not_before, status, error, unknown_since
from unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[], $7::int[],
	$8::timestamptz[], $9::int[], $10::text[], $11::timestamptz[])
	as t (id, xid, queue, ordering_key, reason, attempts, charged, not_before, status, error, unknown_since)
on conflict (message_id) do nothing`

// A scheduled message that fails joins its lane.
const sqlPostponed = `
update outbox.deferred d set ordering_key = t.ordering_key, reason = t.reason, attempts = t.attempts, charged = t.charged,
	not_before = t.not_before, last_status = t.status, last_error = t.error, unknown_since = t.unknown_since
from unnest($1::bigint[], $2::text[], $3::text[], $4::int[], $5::int[], $6::timestamptz[], $7::int[], $8::text[], $9::timestamptz[])
	as t (id, ordering_key, reason, attempts, charged, not_before, status, error, unknown_since)
where d.message_id = t.id`

// A scheduled message whose lane is held goes to the end of the lane: it gets a
// new position.
const sqlRequeued = `
with gone as (
	delete from outbox.deferred d using unnest($1::bigint[], $2::text[]) as t (id, ordering_key)
	where d.message_id = t.id
	returning d.message_id, d.xid, d.deferred_at, d.queue, t.ordering_key, d.attempts, d.charged
)
insert into outbox.deferred (message_id, xid, deferred_at, queue, ordering_key, attempts, charged, reason)
select message_id, xid, deferred_at, queue, ordering_key, attempts, charged, 'held' from gone`

// Reads the whole primary keys of messages and of the outcomes side by side, for
// which sqlLong allows merge joins, and of messages the rows without outcome; takes no
// lock that an application waits for. One statement: its snapshot is what makes the
// order of ids agree with what the stream shows after it.
const sqlReconcile = `
with open as materialized (
	select m.id from outbox.messages m
	where not exists (select from outbox.dispatched d where d.message_id = m.id)
		and not exists (select from outbox.dead_letters d where d.message_id = m.id)
		and not exists (select from outbox.deferred d where d.message_id = m.id)
)
insert into outbox.deferred (message_id, queue, ordering_key, reason, not_before)
select m.id, coalesce(m.queue, ''), case when m.deliver_at > now() then null else m.ordering_key end,
	case when m.deliver_at > now() then 'scheduled' else 'recovered' end,
	case when m.deliver_at > now() then m.deliver_at end
from open join outbox.messages m on m.id = open.id
order by m.id
on conflict (message_id) do nothing`

// For one transaction. A timeout that the role has for everything else would end the
// statement again and again.
const sqlLong = `select set_config('enable_mergejoin', 'on', true), set_config('statement_timeout', '0', true)`

const sqlLockRow = `select from outbox.relays where slot = $1 for update`

const sqlNewSlot = `update outbox.relays set reconciled_at = null, updated_at = now() where slot = $1`

const sqlReconciled = `
update outbox.relays set reconciled_at = now(), updated_at = now() where slot = $1 and epoch = $2`

// The queues that have rows, one index entry each.
const sqlQueues = `
with recursive q as (
	(select queue from outbox.deferred order by queue limit 1)
	union all
	select (select d.queue from outbox.deferred d where d.queue > q.queue order by d.queue limit 1) from q where q.queue is not null
) select queue from q where queue is not null`

// Rows of deferred with their messages. A message that is not there, although
// its transaction is in the past of this query, was deleted; otherwise it is
// not visible yet.
const sqlDeferredRows = `
select d.position, d.message_id, d.queue, coalesce(d.ordering_key, ''), d.attempts, d.charged, d.not_before, d.unknown_since,
	m.id is not null, m.id is null and (d.xid is null or pg_visible_in_snapshot(d.xid, pg_current_snapshot())),
	coalesce(m.key, ''), coalesce(m.queue, ''), coalesce(m.ordering_key, ''),
	coalesce(m.payload::text, ''), coalesce(m.headers::text, ''),
	m.delay_seconds, m.priority, m.created_at, d.reason
from outbox.deferred d left join outbox.messages m on m.id = d.message_id
`

// Index deferred_queue.
const sqlOfQueue = `where d.queue = $1 and d.position > $2 and d.reason <> 'scheduled' order by d.position limit $3`

// Index deferred_lane.
const sqlOfLane = `where d.queue = $1 and d.ordering_key = $2 and d.position > $3 order by d.position limit $4`

// Index deferred_not_before.
const sqlOfDue = `where d.not_before <= now() and d.queue <> all ($1::text[])
	and (d.not_before, d.position) > ($2::timestamptz, $3::bigint) order by d.not_before, d.position limit $4`

var sqlSettings = `
select queue, paused, coalesce(max_in_flight, 0), coalesce(max_attempts, 0), coalesce(rate_per_second, 0),
	ordering = 'queue', on_dead_letter = 'hold', ` + paused.Columns("q") + `
from outbox.queues q`

// Reads the last entry of four primary keys.
const sqlHorizon = `
select greatest(0, (select max(message_id) from outbox.dispatched),
	(select max(message_id) from outbox.dead_letters), (select max(message_id) from outbox.deferred),
	(select max(message_id) from outbox.withdrawn))`
