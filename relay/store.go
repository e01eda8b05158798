package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/vital"
)

// store is the relay's side of Postgres: one connection and the statements that
// run on it. A broken connection is replaced at the next call. The calls of one
// store run one after another.
type store struct {
	dialer *dialer
	schema string
	slot   string
	sql    statements

	pulse vital.Pulse

	mu     sync.Mutex
	conn   *pgx.Conn
	pooler bool // the connection leads through a pooler
	copy   *copyBuffer
}

// newStore returns a store that connects at its first call.
func newStore(dialer *dialer, schema, slot string) *store {
	return &store{dialer: dialer, schema: schema, slot: slot, sql: newStatements(schema), copy: new(copyBuffer)}
}

// with runs do on the connection, which it opens if there is none. Behind a
// pooler all of it is one transaction, which an error that do returns undoes.
func (s *store) with(ctx context.Context, do func(*pgx.Conn) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pulse.Begin(time.Now())
	err := s.connected(ctx, do)
	s.pulse.End(time.Now())
	if !errors.Is(err, context.Canceled) {
		s.pulse.Note(time.Now(), troublesome(err))
	}
	return err
}

func (s *store) connected(ctx context.Context, do func(*pgx.Conn) error) error {
	if s.conn == nil || s.conn.IsClosed() {
		conn, pooler, err := s.dialer.connect(ctx)
		if err != nil {
			return err
		}
		s.conn, s.pooler = conn, pooler
	}
	if s.pooler {
		return inTransaction(ctx, s.conn, do)
	}
	return do(s.conn)
}

// close ends the connection.
func (s *store) close(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		_ = s.conn.Close(ctx)
		s.conn = nil
	}
}

// tenure is what a take-over finds.
type tenure struct {
	epoch      int64
	reconciled bool
	recorded   string // the confirmed flush that was recorded last; empty without one
	moved      bool   // somebody else has moved the slot forward since
}

// takeOver makes the relay's row ours by raising its epoch. A slot that was
// just made invalidates what the row says of an earlier one.
func (s *store) takeOver(ctx context.Context, holder, version, position string, slotCreated bool) (t tenure, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, s.sql.takeOver, s.slot, holder, version, position, slotCreated).
			Scan(&t.epoch, &t.reconciled, &t.recorded, &t.moved)
	})
	if err != nil {
		return tenure{}, fmt.Errorf("take over slot %q: %w", s.slot, err)
	}
	return t, nil
}

// leave stores the last confirmed flush of a session that the server heard of:
// from now on only somebody else can move the slot forward.
func (s *store) leave(ctx context.Context, epoch int64, position string) error {
	return s.with(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, s.sql.leave, s.slot, epoch, position)
		return err
	})
}

// write makes a batch of outcomes durable in one transaction and one round
// trip, if the epoch is still ours.
func (s *store) write(ctx context.Context, epoch int64, position string, batch []*outcome) error {
	others := columnsOf(batch).statements(&s.sql)
	record := statement{s.sql.record, []any{s.slot, epoch, position}}
	if slices.ContainsFunc(batch, (*outcome).marks) {
		err := s.with(ctx, func(conn *pgx.Conn) error { return s.copyIn(ctx, conn, record, others, batch) })
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "23505" {
			return err
		}
		// Some are marked already: the answer to an earlier commit was lost, or
		// a message came twice. COPY cannot skip them.
	}
	return s.with(ctx, func(conn *pgx.Conn) error { return s.insert(ctx, conn, record, others, batch) })
}

// copyIn sends everything as one simple query, which Postgres runs as one
// transaction, and the marks behind it, without waiting for the answer to the
// guard: if that raises, the server throws the rows away.
func (s *store) copyIn(ctx context.Context, conn *pgx.Conn, record statement, others []statement, batch []*outcome) error {
	sql, err := literally(conn, append([]statement{record}, others...))
	if err != nil {
		return err
	}
	_, err = conn.PgConn().CopyFrom(ctx, s.copy.fill(batch), sql+s.sql.copy)
	if err != nil {
		s.copy = new(copyBuffer) // pgx may still be reading the old one
	}
	return err
}

// insert writes the same, and skips the marks that are there already.
func (s *store) insert(ctx context.Context, conn *pgx.Conn, record statement, others []statement, batch []*outcome) error {
	b := &pgx.Batch{}
	b.Queue(record.sql, record.args...)
	if m := marksOf(batch); len(m.ids) > 0 {
		b.Queue(s.sql.dispatched, m.ids, m.queueMessageIDs, m.attempts, m.duplicates)
	}
	for _, other := range others {
		b.Queue(other.sql, other.args...)
	}
	return conn.SendBatch(ctx, b).Close()
}

// known returns which of the messages have an outcome already.
func (s *store) known(ctx context.Context, batch []message) (known map[int64]bool, err error) {
	ids, created := make([]int64, len(batch)), make([]*time.Time, len(batch))
	for i := range batch {
		ids[i], created[i] = batch[i].row.ID, orNullTime(batch[i].row.CreatedAt)
	}
	err = s.with(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, s.sql.known, ids, created)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		known = make(map[int64]bool, len(found))
		for _, id := range found {
			known[id] = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look up outcomes: %w", err)
	}
	return known, nil
}
