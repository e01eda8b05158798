package poll

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// numbers is what the server says about the ids of messages.
type numbers struct {
	pid      uint32 // of the backend that answered
	table    int64  // the oid of messages
	sequence string
	cache    int64 // numbers that a session takes at once
	last     int64 // the last number given out; 0 before the first
}

// table reads the messages. Each statement that is answered proves that the
// lease was held when it was asked.
type table struct {
	conn    *pgx.Conn
	sql     statements
	timeout time.Duration   // of a statement
	heard   func(time.Time) // called with the time of the question
}

// ask runs a statement, with a bound.
func (t *table) ask(ctx context.Context, what string, do func(context.Context) error) error {
	asked := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, t.timeout, fmt.Errorf("no answer within %v", t.timeout))
	defer cancel()
	if err := do(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	t.heard(asked)
	return nil
}

// beat asks for a sign of life. It returns the backend that answered.
func (t *table) beat(ctx context.Context) (pid uint32, err error) {
	err = t.ask(ctx, "ask for a sign of life", func(ctx context.Context) error {
		return t.conn.QueryRow(ctx, `select pg_catalog.pg_backend_pid()`).Scan(&pid)
	})
	return pid, err
}

func (t *table) numbers(ctx context.Context) (n numbers, err error) {
	err = t.ask(ctx, "read the last number of a message", func(ctx context.Context) error {
		return t.conn.QueryRow(ctx, sqlNumbers, t.sql.table).Scan(&n.pid, &n.table, &n.sequence, &n.cache, &n.last)
	})
	if err != nil {
		return n, err
	}
	return n, n.check()
}

// check refuses numbers that do not show what is still to come.
func (n numbers) check() error {
	switch {
	case n.sequence == "":
		return &OperatorError{
			text: "the ids of messages come from no sequence",
			hint: "give the column id of messages its identity back, as `outbox-relay migrate print` has it",
		}
	case n.cache > 1:
		return &OperatorError{
			text: fmt.Sprintf("sequence %s has a cache of %d: a session keeps numbers for later, so nobody knows when a number is settled", n.sequence, n.cache),
			hint: fmt.Sprintf("alter sequence %s cache 1", n.sequence),
		}
	}
	return nil
}

// holders are those who have the lock of a writer.
func (t *table) holders(ctx context.Context, table int64) (holders []writer, err error) {
	err = t.ask(ctx, "look for writers", func(ctx context.Context) error {
		rows, err := t.conn.Query(ctx, sqlHolders, table)
		if err != nil {
			return err
		}
		holders, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (w writer, err error) {
			return w, row.Scan(&w.transaction, &w.pid)
		})
		return err
	})
	return holders, err
}

// page is a part of the table.
type page struct {
	last    int64   // the last number of the page; 0 if it is empty
	full    bool    // there may be more
	open    []int64 // without outcome, in id order
	waiting int64   // without outcome, and not in open because they need order
}

// page reads the numbers above one up to another; if free, only what needs no
// order is in open.
func (t *table) page(ctx context.Context, above, to int64, free bool) (p page, err error) {
	var count int
	err = t.ask(ctx, "look for messages without outcome", func(ctx context.Context) error {
		return t.conn.QueryRow(ctx, t.sql.page, above, to, pageSize, free).Scan(&p.last, &count, &p.open, &p.waiting)
	})
	p.full = count == pageSize
	return p, err
}

// rows reads messages in id order, until they have so many bytes. Those that
// were deleted are left out. It returns the ids that are left to read.
func (t *table) rows(ctx context.Context, ids []int64, most int) (messages []outbox.Row, rest []int64, err error) {
	size := 0
	err = t.ask(ctx, "read messages", func(ctx context.Context) error {
		found, err := t.conn.Query(ctx, t.sql.rows, ids)
		if err != nil {
			return err
		}
		defer found.Close()
		for size < most && found.Next() {
			m, err := scan(found)
			if err != nil {
				return fmt.Errorf("message %d: %w", m.ID, err)
			}
			messages = append(messages, m)
			size += m.Size()
		}
		found.Close() // what was not read is thrown away
		return found.Err()
	})
	if err != nil {
		return nil, nil, err
	}
	if size >= most {
		rest = after(ids, messages[len(messages)-1].ID)
	}
	return messages, rest, nil
}

// after is the part of ascending ids that is above one of them.
func after(ids []int64, last int64) []int64 {
	for i, id := range ids {
		if id > last {
			return ids[i:]
		}
	}
	return nil
}

func scan(rows pgx.Rows) (m outbox.Row, err error) {
	var deliverAt, createdAt pgtype.Timestamptz
	err = rows.Scan(&m.ID, &m.Key, &m.Queue, &m.OrderingKey, &m.Payload, &m.Headers, &m.DelaySeconds, &m.Priority, &deliverAt, &createdAt)
	m.DeliverAt, m.CreatedAt = finite(deliverAt), finite(createdAt)
	return m, err
}

// finite is the zero time for null and infinity.
func finite(t pgtype.Timestamptz) time.Time {
	if !t.Valid || t.InfinityModifier != pgtype.Finite {
		return time.Time{}
	}
	return t.Time
}

// requireVisible refuses a table whose rows are hidden from the role.
func (t *table) requireVisible(ctx context.Context) error {
	var active bool
	var role string
	err := t.ask(ctx, "ask for row security", func(ctx context.Context) error {
		return t.conn.QueryRow(ctx, sqlRowSecurity, t.sql.table).Scan(&active, &role)
	})
	if err != nil || !active {
		return err
	}
	return &OperatorError{
		text: fmt.Sprintf("row security hides rows of %s from role %q", t.sql.table, role),
		hint: fmt.Sprintf("alter table %s disable row level security; or give the role a policy and BYPASSRLS", t.sql.table),
	}
}
