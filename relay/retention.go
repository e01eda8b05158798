package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/waits"
)

// Retention removes dispatched messages with their outcome, discarded dead
// letters, the record of withdrawals, and expired claims, in small transactions
// that nobody waits for. A message without outcome, a deferred one and a dead
// letter that nobody has discarded stay, whatever their age. So does every outcome
// until the stream has passed what an earlier session may have handled.

const (
	retentionBatch    = 1000
	retentionInterval = time.Minute
	// retentionReplay is the wait between two looks at the stream.
	retentionReplay = time.Second
	// retentionPause is the wait between two batches, so that they never
	// compete with delivery.
	retentionPause = 50 * time.Millisecond
	// retentionPauseMost bounds the wait after a batch of claims, of which
	// thousands may expire in a second also on a busy server.
	retentionPauseMost = 200 * time.Millisecond
)

// removed counts what retention has removed.
type removed struct{ messages, claims, deadLetters, withdrawn int64 }

// retainAll removes what is old until ctx ends.
func (s *session) retainAll(ctx context.Context) error {
	var replay replay
	for told := false; ; {
		s.pulses.retention.Begin(time.Now())
		n, err := s.retain(ctx, &replay)
		s.pulses.retention.End(time.Now())
		if over(ctx) {
			return nil
		}
		s.pulses.retention.Note(time.Now(), err)
		s.relay.counts.retained(time.Now(), n, err)
		switch {
		case isPermanent(err):
			// Some installations keep these rights from the relay. It moves
			// messages without them, and removes what it may.
			if !told {
				s.log.Error("retention is not permitted", zap.Error(err))
			}
			told = true
		case err != nil:
			s.log.Warn("retention failed", troubleFields(err)...)
		case n != removed{}:
			s.log.Info("old rows removed", zap.Int64(keyMessages, n.messages), zap.Int64("claims", n.claims),
				zap.Int64("dead_letters", n.deadLetters), zap.Int64("withdrawn", n.withdrawn))
		}
		wait := retentionInterval
		if !replay.over {
			wait = retentionReplay
		}
		if !waits.Sleep(ctx, wait) {
			return nil
		}
	}
}

// replay is the part of the stream that an earlier session may have handled. Of a
// message in it that went out before a crash, its outcome alone says so, however
// old it is by now.
type replay struct {
	end  string // of the WAL, soon after the session began
	over bool   // the confirmed flush has passed that
}

// follow looks how far the stream has come.
func (p *replay) follow(ctx context.Context, s *session) (err error) {
	store := s.relay.sweeping
	if s.relay.cfg.Polls {
		p.over = true
	}
	if p.over {
		return nil
	}
	if p.end == "" {
		err = store.with(ctx, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, `select pg_current_wal_insert_lsn()::text`).Scan(&p.end)
		})
	}
	if err == nil {
		p.over, err = store.reached(ctx, s.relay.source.Position(), p.end)
	}
	return err
}

// retain removes everything that is old now. What it cannot remove keeps it from
// nothing else.
func (s *session) retain(ctx context.Context, replay *replay) (n removed, err error) {
	store, cfg := s.relay.sweeping, s.relay.cfg
	var errs []error
	note := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", what, err))
		}
	}
	rest := func(d time.Duration) bool {
		s.pulses.retention.Turn(time.Now()) // millions of rows take minutes
		return waits.Sleep(ctx, d)
	}
	if err := replay.follow(ctx, s); err != nil {
		errs = append(errs, fmt.Errorf("look how far the stream has come: %w", err))
	}
	if cfg.Retention > 0 && replay.over {
		n.messages, err = store.removeAllOld(ctx, rest, cfg.Retention)
		note("old messages", err)
		n.withdrawn, err = store.removeSome(ctx, rest, store.sql.removeWithdrawn, retentionBatch, cfg.Retention)
		note("old withdrawals", err)
	}
	if cfg.DeadLetterRetention > 0 && replay.over {
		n.deadLetters, err = store.removeSome(ctx, rest, store.sql.removeDiscarded, retentionBatch, cfg.DeadLetterRetention)
		note("discarded dead letters", err)
	}
	n.claims, err = store.removeExpired(ctx, rest)
	note("expired claims", err)
	return n, errors.Join(errs...)
}

// resting waits between two batches, and reports false when there is no time for
// another one.
type resting func(time.Duration) bool

// removeAllOld looks through the dispatched messages. Their ids follow the time at
// which they were written, and some were dispatched long after that, on schedule or
// after an outage: it goes on until the messages themselves are too young.
func (s *store) removeAllOld(ctx context.Context, rest resting, age time.Duration) (n int64, err error) {
	for after := int64(0); ; {
		batch, err := s.removeOld(ctx, after, age)
		if err != nil {
			return n, err
		}
		n += batch.removed
		if batch.last == after || batch.young && batch.removed == 0 || !rest(retentionPause) {
			return n, nil
		}
		after = batch.last
	}
}

// removeSome runs a statement that removes a batch until a batch is not full.
func (s *store) removeSome(ctx context.Context, rest resting, sql string, args ...any) (n int64, err error) {
	for {
		var batch int64
		err := s.with(ctx, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, sql, args...).Scan(&batch)
		})
		if err != nil {
			return n, err
		}
		n += batch
		if batch < retentionBatch || !rest(retentionPause) {
			return n, nil
		}
	}
}

// removeExpired removes claims in the order of their expiry. Each batch begins
// where the one before it ended: until vacuum has been here, the index still has
// what is removed, and a transaction that stays open can keep it there for hours.
// A batch that takes long is one on a busy server: the wait after it is longer, so
// that most of the time is left to those who claim.
func (s *store) removeExpired(ctx context.Context, rest resting) (n int64, err error) {
	for from := (pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}); ; {
		var batch int64
		began := time.Now()
		err := s.with(ctx, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, s.sql.removeClaims, retentionBatch, from).Scan(&batch, &from)
		})
		if err != nil {
			return n, err
		}
		n += batch
		wait := min(max(retentionPause, 4*time.Since(began)), retentionPauseMost)
		if batch < retentionBatch || !rest(wait) {
			return n, nil
		}
	}
}

type removal struct {
	removed int64
	last    int64 // the last message that was looked at
	young   bool  // what was written next cannot be old
}

// removeOld looks at the next dispatched messages, in id order, which is about
// the order of age, and removes the old ones among them.
func (s *store) removeOld(ctx context.Context, after int64, age time.Duration) (r removal, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, s.sql.removeOld, after, retentionBatch, age).Scan(&r.removed, &r.last, &r.young)
	})
	return r, err
}

// Row locks on what is removed only. A young message with an old outcome has the
// number of another one, since somebody made the numbers begin again: it stays, as
// it may be deferred yet. The message behind the batch, by its primary
// key, says whether more of them can be old.
const sqlRemoveOld = `
with seen as materialized (
	select message_id, dispatched_at from outbox.dispatched where message_id > $1 order by message_id limit $2
), old as materialized (
	select message_id from seen where dispatched_at < now() - $3::interval
		and not exists (select from outbox.messages m where m.id = message_id and m.created_at >= now() - $3::interval)
), m as (
	delete from outbox.messages where id in (select message_id from old)
), d as (
	delete from outbox.dispatched where message_id in (select message_id from old) returning message_id
)
select (select count(*) from d), coalesce((select max(message_id) from seen), $1),
	coalesce((select created_at >= now() - $3::interval from outbox.messages
		where id > (select max(message_id) from seen) order by id limit 1), false)`

// Index claims_expires_at. A claim that is being taken again is skipped: its
// transaction may be long, and while this one waited for it, everybody would wait
// who wants one of the others. A row that is locked stays where it is, so the
// rows are found again by their place, at half of what it costs by the key.
const sqlRemoveClaims = `
with old as materialized (
	select ctid, expires_at from outbox.claims
	where expires_at >= $2 and expires_at < now() order by expires_at limit $1
	for update skip locked
), gone as (
	delete from outbox.claims c using old where c.ctid = old.ctid returning 1
)
select (select count(*) from gone), coalesce((select max(expires_at) from old), $2)`

// Withdrawals are few; the table is read as a whole.
const sqlRemoveWithdrawn = `
with gone as (
	delete from outbox.withdrawn where message_id in (
		select message_id from outbox.withdrawn where withdrawn_at < now() - $2::interval limit $1
	) returning 1
) select count(*) from gone`

// Dead letters are few, discarded or not.
const sqlRemoveDiscarded = `
with old as materialized (
	select message_id from outbox.dead_letters where discarded_at < now() - $2::interval limit $1
), m as (
	delete from outbox.messages where id in (select message_id from old)
), gone as (
	delete from outbox.dead_letters where message_id in (select message_id from old) returning 1
) select count(*) from gone`
