// Package blocker finds the open transaction that a new replication slot waits for.
//
// A logical slot is made only when every transaction of the whole server that has
// written something, in any database, has ended. Prepared ones count, and outlive a
// restart.
package blocker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/terminal"
)

// Transaction is one that has written something and is open. What the role may not
// see is empty.
type Transaction struct {
	// PID is its session's; 0 for a prepared transaction.
	PID int `json:"pid"`
	// GID is the name of a prepared transaction; empty for one that has a session.
	GID         string `json:"gid"`
	Database    string `json:"database"`
	Owner       string `json:"owner"`
	Application string `json:"application"`
	// Since is when it began, or was prepared.
	Since *time.Time `json:"since"`
	// OpenSeconds is how long ago that was, by the server's clock.
	OpenSeconds *float64 `json:"open_seconds"`
}

// It is found by the lock that each writer holds on its own transaction id: unlike
// pg_stat_activity, pg_locks shows everybody's. A session that makes a slot waits
// for one after the other, the same way; that one comes first, and then the oldest.
const sqlOldest = `
	select coalesce(l.pid, 0), coalesce(p.gid, ''), coalesce(a.datname, p.database, '')::text, coalesce(a.usename, p.owner, '')::text,
		coalesce(a.application_name, ''), coalesce(a.xact_start, p.prepared),
		extract(epoch from pg_catalog.clock_timestamp() - coalesce(a.xact_start, p.prepared))::float8
	from pg_catalog.pg_locks l
	left join pg_catalog.pg_stat_activity a on a.pid = l.pid
	left join pg_catalog.pg_prepared_xacts p on l.pid is null and p.transaction = l.transactionid
	where l.locktype = 'transactionid' and l.mode = 'ExclusiveLock' and l.granted
		and l.pid is distinct from pg_catalog.pg_backend_pid() and l.pid is distinct from $1::int
	order by exists (
			select from pg_catalog.pg_locks w where w.pid = $1::int and not w.granted
				and w.locktype = 'transactionid' and w.transactionid = l.transactionid
		) desc, coalesce(a.xact_start, p.prepared), pg_catalog.age(l.transactionid) desc
	limit 1`

// Querier is a connection or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Of is the transaction for which the session maker waits with a slot that it
// makes; if maker is 0, or that cannot be told, the oldest one. It is nil if none
// is open.
func Of(ctx context.Context, q Querier, maker int) (*Transaction, error) {
	var t Transaction
	err := q.QueryRow(ctx, sqlOldest, maker).Scan(&t.PID, &t.GID, &t.Database, &t.Owner, &t.Application, &t.Since, &t.OpenSeconds)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look for open transactions: %w", err)
	}
	return &t, nil
}

// Name is which one it is, in few words; nil is one that has just ended.
func (t *Transaction) Name() string {
	switch {
	case t == nil:
		return "one that has just ended"
	case t.GID != "":
		return "prepared transaction " + literal(t.GID)
	case t.PID != 0:
		return fmt.Sprintf("pid %d", t.PID)
	}
	return "a transaction"
}

// String is the name with where it is and whose.
func (t *Transaction) String() string {
	text := t.Name()
	if t == nil {
		return text
	}
	var facts []string
	for _, f := range []struct{ what, value string }{{"database ", t.Database}, {"role ", t.Owner}, {"", t.Application}} {
		if f.value != "" {
			facts = append(facts, f.what+f.value)
		}
	}
	if facts == nil {
		return text
	}
	return terminal.Line(text + " (" + strings.Join(facts, ", ") + ")")
}

// Open is for how long it has been open; empty if that is not known.
func (t *Transaction) Open() string {
	if t == nil || t.OpenSeconds == nil {
		return ""
	}
	return "open for " + time.Duration(*t.OpenSeconds*float64(time.Second)).Round(time.Second).String()
}

// Hint is a sentence that says who ends it, and how.
func (t *Transaction) Hint() string {
	switch {
	case t == nil:
		return ""
	case t.GID != "":
		return fmt.Sprintf("its owner knows which is right: commit prepared %s, or rollback prepared %[1]s; in a session of database %s, as role %s or a superuser",
			literal(t.GID), pgx.Identifier{t.Database}.Sanitize(), pgx.Identifier{t.Owner}.Sanitize()) + meanwhile
	case t.PID != 0:
		return "its owner ends it; or, as the same role or an administrator: " + t.End() + meanwhile
	}
	return "see pg_prepared_xacts and pg_stat_activity, as a role with pg_read_all_stats" + meanwhile
}

// A restart begins at the same place again.
const meanwhile = "; a restart does not help, RELAY_MODE=poll sends meanwhile"

// End is the statement that ends it; empty for a prepared one, of which only its
// owner knows how it is to end.
func (t *Transaction) End() string {
	if t == nil || t.PID == 0 {
		return ""
	}
	return fmt.Sprintf("select pg_terminate_backend(%d)", t.PID)
}

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
