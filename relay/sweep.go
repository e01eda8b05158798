package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/waits"
)

// The sweep finds what the WAL did not show: messages that a changed publication,
// a swapped table or a hand in the catalog hid from the stream. The table is the
// truth; the WAL is the fast path.
//
// A round looks for messages without outcome, notes the end of the WAL after that,
// so that their commits are before it, and waits until the confirmed flush has
// passed that position: everything that the stream could show of them has an
// outcome by then. What still has none, it never will show. That is deferred with
// the reason recovered, and it is an alarm.
//
// Looking at the whole table every minute would be too much, so a floor moves up
// behind the messages that are settled. The first pass, which begins with the first
// message, and all others go page by page, each in a snapshot of its own: on a large
// table a pass takes minutes, and no statement of it keeps vacuum waiting.
// Numbers are given out before commits, in
// no order, so the floor may pass a number only when no transaction that could
// still commit a lower one is open. An INSERT takes its lock on the table before
// its number: the floor moves up to the last number once those are gone that had
// the lock when it was read.

const (
	// sweepPage is the number of messages that one statement looks at.
	sweepPage = 20_000
	// sweepChunk is the number of candidates after which a round looks no further.
	sweepChunk = 10_000
	// sweepPatience is how long the first pass waits for the writers of its mark:
	// without that the second one had to look at everything once more.
	sweepPatience = 2 * time.Second
	// sweepAgain is the wait after a round that failed.
	sweepAgain = 10 * time.Second
	// sweepPause is the wait between two looks at the confirmed flush.
	sweepPause = 200 * time.Millisecond
)

// sweeper remembers what a round leaves for the next.
type sweeper struct {
	store *store
	log   *zap.Logger
	turn  func() // called with every page
	floor int64  // every id up to this one has an outcome, or never existed
	mark  mark   // taken in an earlier pass, for the next floor
	pass  pass   // the one under way; zero between two
	again bool   // numbers begin again, and that was told
}

// pass is one way through the table, from the floor to the last message.
type pass struct {
	last  int64 // the last message that was looked at
	floor int64 // what the floor may be once all candidates have an outcome
}

// mark is a number that was given out, and who may still commit one up to it.
type mark struct {
	last    int64
	writers []string
}

// round is one look at the table, a pass or a part of it.
type round struct {
	pass
	position   string  // the end of the WAL after the look
	candidates []int64 // visible messages without outcome
	more       bool    // the pass has not come to its end
}

// sweepAll sweeps until ctx ends.
func (s *session) sweepAll(ctx context.Context) error {
	if s.relay.cfg.Polls {
		return nil
	}
	sweeper := &sweeper{store: s.relay.sweeping, log: s.log, turn: func() { s.pulses.sweep.Turn(time.Now()) }}
	for {
		wait := s.relay.cfg.SweepInterval
		s.pulses.sweep.Begin(time.Now())
		s.sweeps.begin()
		more, err := s.sweepOnce(ctx, sweeper)
		s.pulses.sweep.End(time.Now())
		if over(ctx) {
			return nil
		}
		s.pulses.sweep.Note(time.Now(), err)
		switch {
		case isPermanent(err):
			return err
		case err != nil:
			s.log.Warn("sweep failed", troubleFields(err)...)
			wait = min(wait, sweepAgain)
		case more:
			wait = 0
		}
		s.sweeps.rest(time.Now().Add(wait))
		if !waits.Sleep(ctx, wait) {
			return nil
		}
	}
}

func (s *session) sweepOnce(ctx context.Context, w *sweeper) (more bool, err error) {
	r, err := w.look(ctx)
	if err != nil {
		return false, err
	}
	if err := s.passed(ctx, r.position); err != nil {
		return false, err
	}
	recovered, err := w.recover(ctx, s.writer.epoch, r.candidates)
	if err != nil {
		return false, err
	}
	if err := s.checkNumbers(ctx, w); err != nil {
		return false, err
	}
	s.relay.totals.recover(time.Now(), recovered)
	s.sweeps.found(recovered)
	if recovered > 0 {
		s.log.Error("messages recovered that the stream did not show", zap.Int64(keyMessages, recovered))
		signal(s.router.load)
	}
	w.pass = r.pass
	if !r.more {
		w.floor, w.pass = max(w.floor, r.floor), pass{}
		s.sweeps.passed(time.Now())
	}
	return r.more, nil
}

// checkNumbers tells when numbers are given out again that have outcomes, as
// after a TRUNCATE with RESTART IDENTITY. The stream's messages go out
// nevertheless; the sweep cannot tell them from the old ones.
func (s *session) checkNumbers(ctx context.Context, w *sweeper) error {
	var last, highest int64
	err := w.store.with(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, w.store.sql.numbers).Scan(&highest, &last)
	})
	if err != nil {
		return fmt.Errorf("compare the numbers of messages: %w", err)
	}
	again := last > 0 && last < highest
	if again && !w.again {
		s.log.Error("numbers of messages begin again: the sweep takes new ones for old ones; let the identity go on above the highest number",
			zap.Int64(keyMessageID, last), zap.Int64("highest", highest))
	}
	w.again = again
	return nil
}

// passed waits until the confirmed flush has passed a position.
func (s *session) passed(ctx context.Context, position string) error {
	for {
		s.pulses.sweep.Turn(time.Now()) // that may take as long as it likes
		passed, err := s.relay.sweeping.reached(ctx, s.relay.source.Position(), position)
		if err != nil || passed {
			return err
		}
		if !waits.Sleep(ctx, sweepPause) {
			return ctx.Err()
		}
	}
}

// look goes on with the pass, or begins one, until there are enough candidates.
func (w *sweeper) look(ctx context.Context) (r round, err error) {
	r.pass, r.more = w.pass, true
	if r.pass == (pass{}) {
		r.last = w.floor
		if r.floor, err = w.mayRise(ctx); err != nil {
			return round{}, fmt.Errorf("look for messages without outcome: %w", err)
		}
	}
	for r.more && len(r.candidates) < sweepChunk {
		if err := w.page(ctx, &r); err != nil {
			return round{}, fmt.Errorf("look for messages without outcome: %w", err)
		}
		w.turn()
	}
	err = w.store.with(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `select pg_current_wal_insert_lsn()::text`).Scan(&r.position)
	})
	return r, err
}

// page looks at the next messages.
func (w *sweeper) page(ctx context.Context, r *round) error {
	var found []int64
	err := w.store.with(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, w.store.sql.candidates, r.last, sweepPage).Scan(&found, &r.last, &r.more)
	})
	r.candidates = append(r.candidates, found...)
	return err
}

// mayRise returns where the floor may be after a pass that begins now. If nobody can
// commit a number any more up to an earlier mark, before the pass, then the pass sees
// everything up to that.
func (w *sweeper) mayRise(ctx context.Context) (floor int64, err error) {
	for deadline := time.Now().Add(sweepPatience); ; {
		err = w.store.with(ctx, func(conn *pgx.Conn) error {
			floor, err = w.settled(ctx, conn)
			return err
		})
		if err != nil || floor > 0 || w.floor > 0 || w.mark.last == 0 || time.Now().After(deadline) {
			return floor, err
		}
		if !waits.Sleep(ctx, sweepPause) {
			return 0, ctx.Err()
		}
	}
}

// settled returns the number of the last mark if its writers are gone, and takes
// the next mark; 0 while they are not.
func (w *sweeper) settled(ctx context.Context, conn *pgx.Conn) (last int64, err error) {
	var open bool
	if err := conn.QueryRow(ctx, w.store.sql.writersOpen, w.mark.writers).Scan(&open); err != nil || open {
		return 0, err
	}
	last = w.mark.last
	return last, conn.QueryRow(ctx, w.store.sql.sweepMark, w.store.schema).Scan(&w.mark.last, &w.mark.writers)
}

// recover defers the candidates that still have no outcome.
func (w *sweeper) recover(ctx context.Context, epoch int64, candidates []int64) (n int64, err error) {
	if len(candidates) == 0 {
		return 0, nil
	}
	err = w.store.with(ctx, func(conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, w.store.sql.recover, candidates, w.store.slot, epoch)
		n = tag.RowsAffected()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("recover messages: %w", err)
	}
	return n, nil
}

// reached reports whether one position is not before another.
func (s *store) reached(ctx context.Context, position, target string) (reached bool, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `select $1::pg_lsn >= $2::pg_lsn`, position, target).Scan(&reached)
	})
	return reached, err
}

// The sequence never is behind what the statement sees of the tables.
const sqlNumbers = sqlHorizon + `,
	coalesce((select pg_sequence_last_value(q) from pg_get_serial_sequence('outbox.messages', 'id') g, to_regclass(g) q
		where has_sequence_privilege(q, 'select')), 0)`

// The number first, the locks after: a writer that has no lock by then gets a
// higher number. The sequence is asked for: that of a table which took the place
// of the first one has another name, and may lack its grants: then the floor
// stays where it is. So it does if sessions take several numbers at a time: one
// of these may be used long after.
const sqlSweepMark = `
select coalesce((select pg_sequence_last_value(q) from pg_get_serial_sequence('outbox.messages', 'id') g, to_regclass(g) q, pg_sequence s
		where s.seqrelid = q and s.seqcache = 1 and has_sequence_privilege(q, 'select')), 0),
	coalesce((select array_agg(distinct l.virtualtransaction) from pg_locks l
		where l.mode = 'RowExclusiveLock' and l.relation = t.oid and l.database = (select oid from pg_database where datname = current_database())), '{}')
from pg_class t join pg_namespace n on n.oid = t.relnamespace
where n.nspname = $1 and t.relname = 'messages'`

// A prepared transaction has another name than before, so any of them may be one
// of the writers.
const sqlWritersOpen = `
select exists (select from pg_locks l where l.virtualtransaction = any ($1::text[]))
	or exists (select from pg_prepared_xacts p where p.database = current_database())`

// Reads a part of the primary key of messages, and the same part of those of the
// outcomes, from end to end: some hundred blocks. A set operation, because the relay's
// connections join by single look-ups, which would be tens of thousands. Says which
// messages are open, which is the last one of the page, and whether the page is full.
const sqlCandidates = `
with page as materialized (
	select m.id from outbox.messages m where m.id > $1 order by m.id limit $2
), bound as materialized (
	select coalesce(max(id), $1) as last, count(*) = $2 as filled from page
), open as (
	select id from page
	except select message_id from outbox.dispatched where message_id > $1 and message_id <= (select last from bound)
	except select message_id from outbox.dead_letters where message_id > $1 and message_id <= (select last from bound)
	except select message_id from outbox.deferred where message_id > $1 and message_id <= (select last from bound)
)
select (select coalesce(array_agg(id order by id), '{}') from open), last, filled from bound`

// Only under our epoch: another relay looks for itself. The relay's row is locked, so
// that who takes over waits for the end, and so does the writer: a row of its with an
// earlier position would come to light when later ones have been read.
const sqlRecover = `
insert into outbox.deferred (message_id, queue, ordering_key, reason, not_before)
select m.id, coalesce(m.queue, ''), case when m.deliver_at > now() then null else m.ordering_key end,
	case when m.deliver_at > now() then 'scheduled' else 'recovered' end, greatest(now(), m.deliver_at)
from outbox.messages m
where m.id = any ($1::bigint[])
	and exists (select from outbox.relays r where r.slot = $2 and r.epoch = $3 for update)
	and not exists (select from outbox.dispatched d where d.message_id = m.id)
	and not exists (select from outbox.dead_letters d where d.message_id = m.id)
	and not exists (select from outbox.deferred d where d.message_id = m.id)
order by m.id
on conflict (message_id) do nothing`
