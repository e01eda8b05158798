package verify

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// The last number of a batch after $1: the lowest one at which one of the five
// tables has $3 rows, at most $2. Reads as much of each primary key.
const sqlLast = `
select min(last) from (
	select case when count(*) = $3::bigint then max(id) else $2::bigint end from (
		select message_id from outbox.message_status where message_id > $1 and message_id <= $2 order by message_id limit $3) t (id)
	union all
	select case when count(*) = $3::bigint then max(id) else $2::bigint end from (
		select message_id from outbox.dispatched where message_id > $1 and message_id <= $2 order by message_id limit $3) t (id)
	union all
	select case when count(*) = $3::bigint then max(id) else $2::bigint end from (
		select message_id from outbox.dead_letters where message_id > $1 and message_id <= $2 order by message_id limit $3) t (id)
	union all
	select case when count(*) = $3::bigint then max(id) else $2::bigint end from (
		select message_id from outbox.deferred where message_id > $1 and message_id <= $2 order by message_id limit $3) t (id)
	union all
	select case when count(*) = $3::bigint then max(id) else $2::bigint end from (
		select message_id from outbox.withdrawn where message_id > $1 and message_id <= $2 order by message_id limit $3) t (id)
) as batch (last)`

// What is known of each number, and what is wrong with it. The view shows no
// payloads, so the right to read them is not needed; of its joins nothing is left
// here, because their columns are not asked for. The snapshot is older than the
// statement, so what is in it does not come from the future. A clock that was set back between
// two servers is not taken for numbers that begin again, thanks to the minute.
const sqlJudged = `
with m as materialized (select message_id as id, true as m, created_at from outbox.message_status where CHOSEN),
s as materialized (select message_id as id, true as s, dispatched_at from outbox.dispatched where CHOSEN),
x as materialized (select message_id as id, true as x, died_at from outbox.dead_letters where CHOSEN),
d as materialized (
	select message_id as id, true as d, reason = 'dead_letter' as holds, not_before is null as untimed
	from outbox.deferred where CHOSEN),
w as materialized (select message_id as id, true as w from outbox.withdrawn where CHOSEN),
joined as materialized (
	select id, created_at, coalesce(dispatched_at, died_at) as outcome_at, coalesce(m, false) as m, coalesce(s, false) as s,
		coalesce(x, false) as x, coalesce(d, false) as d, coalesce(w, false) as w,
		coalesce(holds, false) as holds, coalesce(untimed, false) as untimed
	from m full join s using (id) full join x using (id) full join d using (id) full join w using (id)
), judged as materialized (
	select *, case
		when m and w then 'withdrawn_and_there'
		when s::int + x::int + d::int + w::int > 1
			and not (x and d and holds and not s and not w) and not (x and w and not m and not s and not d) then 'two_outcomes'
		when holds and untimed and not x then 'no_dead_letter'
		when m and outcome_at < created_at - interval '1 minute' and created_at <= statement_timestamp() then 'older_outcome'
		when m and not (s or x or d) and created_at > statement_timestamp() - YOUNG * interval '1 second' and created_at <= statement_timestamp() then 'young'
		when m and not (s or x or d) then 'unaccounted'
	end as kind
	from joined
)`

// judged is sqlJudged for some numbers.
func judged(chosen, young string) string {
	return strings.NewReplacer("CHOSEN", chosen, "YOUNG", young).Replace(sqlJudged)
}

// Each message counts once, whatever it has.
var sqlBatch = judged("message_id > $1::bigint and message_id <= $2::bigint", "$3::float8") + `
select count(*) filter (where m), count(*) filter (where m and s), count(*) filter (where m and d and not s and not x),
	count(*) filter (where m and x and not s), count(*) filter (where m and not (s or x or d)),
	count(*) filter (where w), count(*) filter (where s and not m), count(*) filter (where d and not m), count(*) filter (where x and not m),
	coalesce(array_agg(id order by id) filter (where kind = 'unaccounted'), '{}'),
	coalesce(array_agg(id order by id) filter (where kind not in ('young', 'unaccounted')), '{}')
from judged`

// batch counts the next range of numbers and returns its last one.
func (v *verifier) batch(ctx context.Context, after int64) (last int64, err error) {
	counts := Counts{From: after + 1}
	var late, wrong []int64
	err = v.snapshot(ctx, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, v.in(sqlLast), after, v.report.To, v.cfg.Batch).Scan(&last); err != nil {
			return err
		}
		return tx.QueryRow(ctx, v.in(sqlBatch), after, last, v.cfg.Young.Seconds()).Scan(
			&counts.Messages, &counts.Dispatched, &counts.Deferred, &counts.DeadLetters, &counts.InFlight,
			&counts.Withdrawn, &counts.DispatchedDeleted, &counts.DeferredDeleted, &counts.DeadDeleted, &late, &wrong)
	})
	if err != nil {
		return 0, err
	}
	counts.To = last
	v.report.Batches++
	v.report.add(&counts)
	if v.cfg.Ranges {
		v.report.Ranges = append(v.report.Ranges, counts)
	}
	v.doubt(&v.late, late)
	v.doubt(&v.wrong, wrong)
	return last, nil
}

// doubt keeps messages for the second look. What is too much for that stays what
// it is: in flight, or one more of very many faults.
func (v *verifier) doubt(kept *[]int64, ids []int64) {
	room := max(0, doubtsBound-len(*kept))
	if len(ids) > room && kept == &v.late {
		v.report.Late += int64(len(ids) - room)
	}
	*kept = append(*kept, ids[:min(len(ids), room)]...)
}
