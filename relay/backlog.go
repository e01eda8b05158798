package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// deferredRow is one row of deferred with its message.
type deferredRow struct {
	position int64
	row      outbox.Row
	missing  bool // the application deleted the message
}

// reconcile defers every message that has no outcome, in id order, and returns
// how many. It runs after a slot was made: what was committed before it, the
// stream will never show.
func (s *store) reconcile(ctx context.Context, epoch int64) (found int64, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		b := &pgx.Batch{}
		b.Queue(s.sql.reconcile)
		b.Queue(s.sql.reconciled, s.slot, epoch)
		results := conn.SendBatch(ctx, b)
		tag, err := results.Exec()
		if err != nil {
			_ = results.Close()
			return err
		}
		found = tag.RowsAffected()
		return results.Close()
	})
	if err != nil {
		return 0, fmt.Errorf("reconcile: %w", err)
	}
	return found, nil
}

// backlog returns the next deferred messages after a position.
func (s *store) backlog(ctx context.Context, after int64, limit int) (chunk []deferredRow, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, s.sql.backlog, after, limit)
		if err != nil {
			return err
		}
		chunk, err = pgx.CollectRows(rows, scanDeferred)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read deferred messages: %w", err)
	}
	return chunk, nil
}

// horizon is the highest id that has an outcome or is deferred, 0 without any.
func (s *store) horizon(ctx context.Context) (id int64, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, s.sql.horizon).Scan(&id)
	})
	return id, err
}

func scanDeferred(rows pgx.CollectableRow) (d deferredRow, err error) {
	var found bool
	var deliverAt, createdAt pgtype.Timestamptz
	m := &d.row
	err = rows.Scan(&d.position, &m.ID, &found, &m.Key, &m.Queue, &m.OrderingKey, &m.Payload, &m.Headers,
		&m.DelaySeconds, &m.Priority, &deliverAt, &createdAt)
	d.missing = !found
	m.DeliverAt, m.CreatedAt = finite(deliverAt), finite(createdAt)
	return d, err
}

// finite is the zero time for null and infinity.
func finite(t pgtype.Timestamptz) time.Time {
	if !t.Valid || t.InfinityModifier != pgtype.Finite {
		return time.Time{}
	}
	return t.Time
}
