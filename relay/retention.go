package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
)

// Retention removes dispatched messages with their outcome, and expired claims,
// in small transactions that nobody waits for. A message without outcome, a
// deferred one and a dead letter stay, whatever their age.

const (
	retentionBatch    = 1000
	retentionInterval = time.Minute
	// retentionPause is the wait between two batches, so that they never
	// compete with delivery.
	retentionPause = 50 * time.Millisecond
)

// retainAll removes what is old until ctx ends.
func (s *session) retainAll(ctx context.Context) error {
	for {
		messages, claims, err := s.retain(ctx)
		if over(ctx) {
			return nil
		}
		switch {
		case isPermanent(err):
			// Some installations keep these rights from the relay. It moves
			// messages without them.
			s.log.Error("retention is not permitted", zap.Error(err))
			<-ctx.Done()
		case err != nil:
			s.log.Warn("retention failed", zap.Error(err))
		case messages+claims > 0:
			s.log.Info("old rows removed", zap.Int64(keyMessages, messages), zap.Int64("claims", claims))
		}
		if !sleep(ctx, retentionInterval) {
			return nil
		}
	}
}

// retain removes everything that is old now.
func (s *session) retain(ctx context.Context) (messages, claims int64, err error) {
	store := s.relay.sweeping
	if age := s.relay.cfg.Retention; age > 0 {
		for after := int64(0); ; {
			batch, err := store.removeOld(ctx, after, age)
			if err != nil {
				return messages, claims, err
			}
			messages += batch.removed
			if batch.removed == 0 || !sleep(ctx, retentionPause) {
				break
			}
			after = batch.last
		}
	}
	for {
		n, err := store.removeClaims(ctx)
		if err != nil {
			return messages, claims, err
		}
		claims += n
		if n < retentionBatch || !sleep(ctx, retentionPause) {
			return messages, claims, nil
		}
	}
}

type removal struct {
	removed int64
	last    int64 // the last message that was looked at
}

// removeOld looks at the next dispatched messages, in id order, which is about
// the order of age, and removes the old ones among them.
func (s *store) removeOld(ctx context.Context, after int64, age time.Duration) (r removal, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, s.sql.removeOld, after, retentionBatch, age).Scan(&r.removed, &r.last)
	})
	if err != nil {
		return removal{}, fmt.Errorf("remove old messages: %w", err)
	}
	return r, nil
}

func (s *store) removeClaims(ctx context.Context) (n int64, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, s.sql.removeClaims, retentionBatch)
		n = tag.RowsAffected()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("remove expired claims: %w", err)
	}
	return n, nil
}

// Row locks on what is removed only.
const sqlRemoveOld = `
with seen as materialized (
	select message_id, dispatched_at from outbox.dispatched where message_id > $1 order by message_id limit $2
), old as materialized (
	select message_id from seen where dispatched_at < now() - $3::interval
), m as (
	delete from outbox.messages where id in (select message_id from old)
), d as (
	delete from outbox.dispatched where message_id in (select message_id from old) returning message_id
)
select (select count(*) from d), coalesce((select max(message_id) from seen), $1)`

// Index claims_expires_at. A claim that is being taken again has a new expiry
// when its transaction has ended, and stays.
const sqlRemoveClaims = `
delete from outbox.claims c using (
	select consumer, event_id from outbox.claims where expires_at < now() order by expires_at limit $1
) old where c.consumer = old.consumer and c.event_id = old.event_id and c.expires_at < now()`
