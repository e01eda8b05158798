package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-relay/outbox-relay/internal/waits"
	"github.com/outbox-relay/outbox-relay/outbox"
)

// deferredRow is one row of deferred with its message.
type deferredRow struct {
	position    int64
	queue       string
	orderingKey string
	attempts    int
	charged     int
	notBefore   time.Time // zero: with its queue or lane
	unknownAt   time.Time
	row         outbox.Row
	reason      string
	missing     bool // the application deleted the message
	unseen      bool // the message is not visible yet

	carried *outcome // what an earlier session of this process could not write
}

// waits reports whether what is behind the row in its lane must wait: its time
// has not come, or it is a dead letter that holds the lane.
func (d *deferredRow) waits(now time.Time, q *queue) bool {
	if d.reason == reasonDeadLetter {
		return d.notBefore.IsZero() && q.settings.HoldOnDeadLetter
	}
	return d.notBefore.After(now)
}

// reconcile defers every message that has no outcome, in id order, and returns
// how many. It runs after a slot was made: what was committed before it, the
// stream will never show. It holds the relay's row: a server may go on with it after
// the relay that asked is gone, and who takes over has to wait for that. Otherwise
// rows would come that nobody expects any more, of messages that have gone out
// meanwhile.
func (s *store) reconcile(ctx context.Context, epoch int64, position string) (found int64, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		b := &pgx.Batch{}
		b.Queue(s.sql.lockRow, s.slot)
		b.Queue(s.sql.record, s.slot, epoch, position)
		b.Queue(sqlLong)
		b.Queue(s.in(sqlForeign))
		b.Queue(s.sql.reconcile).Exec(func(tag pgconn.CommandTag) error {
			found = tag.RowsAffected()
			return nil
		})
		b.Queue(s.sql.reconciled, s.slot, epoch)
		return conn.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return 0, fmt.Errorf("reconcile: %w", err)
	}
	return found, nil
}

// Transactions that this server is far from having begun are of another cluster, from
// which the table was copied: their messages are as visible as they will ever be. One of
// this server that is still open may be a few numbers ahead of the snapshot.
const sqlForeign = `
update outbox.deferred set xid = null
where xid::text::bigint > pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 10000`

// visiblePatience bounds the wait of awaitVisible.
const visiblePatience = 2 * time.Second

// awaitVisible waits a little for the transactions that are open. One of them
// may be in the WAL already, before the slot, and not yet visible: neither the
// stream nor the table would show it. One that stays open for longer, most likely
// commits behind the slot; if it does not, since it waits for a standby, the
// sweep finds it.
func (s *store) awaitVisible(ctx context.Context) error {
	return s.with(ctx, func(conn *pgx.Conn) error {
		var snapshot string
		if err := conn.QueryRow(ctx, `select pg_current_snapshot()::text`).Scan(&snapshot); err != nil {
			return fmt.Errorf("read the open transactions: %w", err)
		}
		for deadline := time.Now().Add(visiblePatience); ; {
			var open int
			if err := conn.QueryRow(ctx, sqlOpenOf, snapshot).Scan(&open); err != nil {
				return fmt.Errorf("look for open transactions: %w", err)
			}
			if open == 0 || time.Now().After(deadline) || !waits.Sleep(ctx, againPause) {
				return ctx.Err()
			}
		}
	})
}

// Transactions that were open in a snapshot and still are.
const sqlOpenOf = `
select count(*) from pg_snapshot_xip($1::text::pg_snapshot) as xid
where not pg_visible_in_snapshot(xid, pg_current_snapshot())`

// expectNewSlot makes it known that a slot is about to be made, whoever lives to
// see it: the next session reconciles.
func (r *Relay) expectNewSlot(ctx context.Context) error {
	return r.writing.with(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, r.writing.sql.newSlot, r.cfg.Slot)
		return err
	})
}

// deferred returns the rows that a job asks for, as many as fit into so many
// bytes and at least one, and whether there may be more.
func (s *store) deferred(ctx context.Context, j job, bytes int) (chunk []deferredRow, more bool, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		rows, err := s.query(ctx, conn, j)
		if err != nil {
			return err
		}
		defer rows.Close()
		chunk, more = nil, false
		for rows.Next() {
			if bytes <= 0 {
				more = true
				break
			}
			d, err := scanDeferred(rows)
			if err != nil {
				return err
			}
			bytes -= d.row.Size()
			chunk = append(chunk, d)
		}
		rows.Close()
		more = more || len(chunk) == j.limit
		return rows.Err()
	})
	if err != nil {
		return nil, false, fmt.Errorf("read deferred messages: %w", err)
	}
	return chunk, more, nil
}

func (s *store) query(ctx context.Context, conn *pgx.Conn, j job) (pgx.Rows, error) {
	switch h := j.hold; {
	case h == nil:
		after := pgtype.Timestamptz{Time: j.afterTime, Valid: true}
		if j.afterTime.IsZero() {
			after.InfinityModifier = pgtype.NegativeInfinity
		}
		return conn.Query(ctx, s.sql.due, j.heldQueues, after, j.after, j.limit)
	case h.lane == nil:
		return conn.Query(ctx, s.sql.queueChunk, h.queue.name, j.after, j.limit)
	case h.lane.key.orderingKey == wholeQueue:
		return conn.Query(ctx, s.sql.queueChunk, h.queue.name, j.after, j.limit)
	default:
		return conn.Query(ctx, s.sql.laneChunk, h.queue.name, h.lane.key.orderingKey, j.after, j.limit)
	}
}

// deferredQueues are the queues that have rows in deferred.
func (s *store) deferredQueues(ctx context.Context) (names []string, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, s.sql.queues)
		if err != nil {
			return err
		}
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return names, err
}

// horizon is the highest id that has an outcome or is deferred, 0 without any.
func (s *store) horizon(ctx context.Context) (id int64, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, s.sql.horizon).Scan(&id)
	})
	return id, err
}

func scanDeferred(rows pgx.Rows) (d deferredRow, err error) {
	var found, past bool
	var notBefore, unknownAt, createdAt pgtype.Timestamptz
	m := &d.row
	err = rows.Scan(&d.position, &m.ID, &d.queue, &d.orderingKey, &d.attempts, &d.charged, &notBefore, &unknownAt,
		&found, &past, &m.Key, &m.Queue, &m.OrderingKey, &m.Payload, &m.Headers, &m.DelaySeconds, &m.Priority, &createdAt, &d.reason)
	d.missing, d.unseen = !found && past, !found && !past
	d.notBefore, d.unknownAt, m.CreatedAt = finite(notBefore), finite(unknownAt), finite(createdAt)
	if d.missing {
		m.Queue, m.OrderingKey = d.queue, d.orderingKey
	}
	return d, err
}

// finite is the zero time for null and infinity.
func finite(t pgtype.Timestamptz) time.Time {
	if !t.Valid || t.InfinityModifier != pgtype.Finite {
		return time.Time{}
	}
	return t.Time
}
