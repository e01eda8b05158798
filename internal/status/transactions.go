package status

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Transactions say for how long, in seconds, the oldest transactions of others have
// been open; 0 without one. Nil is what the role may not see.
type Transactions struct {
	// Writer has written something, in any database of the server: the WAL since its
	// beginning is kept for the slot, and no slot is made before it ends.
	Writer *float64
	// Prepared is the same of one that was prepared.
	Prepared *float64
	// Reader has a snapshot of this database and has written nothing: vacuum removes
	// nothing that it may still see.
	Reader *float64
}

// Without pg_read_all_stats the server does not tell when the transactions of other
// roles began.
const sqlTransactions = `
with seen as (
	select backend_xid is not null as writes, extract(epoch from clock_timestamp() - xact_start)::float8 as open
	from pg_stat_activity
	where xact_start is not null and pid <> pg_backend_pid()
		and (backend_xid is not null or backend_xmin is not null and datname = current_database() and backend_type = 'client backend')
)
select case when may.see then coalesce((select max(open) from seen where writes), 0) end,
	(select coalesce(max(extract(epoch from clock_timestamp() - prepared)), 0)::float8 from pg_prepared_xacts),
	case when may.see then coalesce((select max(open) from seen where not writes), 0) end
from (select pg_has_role(oid, 'usage') as see from pg_roles where rolname = 'pg_read_all_stats') may`

func (t *Transactions) read(ctx context.Context, tx pgx.Tx) error {
	return tx.QueryRow(ctx, sqlTransactions).Scan(&t.Writer, &t.Prepared, &t.Reader)
}
