package status

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Figures are a report with what only machines want to know.
type Figures struct {
	Report
	// WrittenBytes is how much WAL the server has ever written, by the position of
	// its end.
	WrittenBytes int64
	Replication  SlotFigures
	// Writers are known from Postgres 18 on; nil before.
	Writers []Writer
	// DeadLetterReasons counts the dead letters that need a person.
	DeadLetterReasons []ReasonCount
	// OldestUnknownSeconds is how long ago the first request for a deferred message
	// went out that may have been accepted; nil without one.
	OldestUnknownSeconds *float64
	Tables               []Table
	Transactions         Transactions
	// Ahead is how far the server's clock is ahead of this machine's at least, in
	// seconds; less than 0 behind it.
	Ahead float64
}

// ReasonCount is a number of rows with one reason.
type ReasonCount struct {
	Reason string
	Count  int64
}

// Table is what the statistics know of a table of the outbox.
type Table struct {
	Name string
	// Bytes is its size with indexes.
	Bytes    int64
	DeadRows int64
	Rows     int64
}

// ReadFigures reads the figures of a slot and of the tables in schema. Counts stop
// where those of [Read] do.
func ReadFigures(ctx context.Context, conn *pgx.Conn, schema, slot string) (*Figures, error) {
	f := new(Figures)
	f.SchemaVersion, f.slotName = 1, slot
	err := Snapshot(ctx, conn, func(tx pgx.Tx) error {
		if err := f.Report.read(ctx, tx, schema); err != nil {
			return err
		}
		return f.read(ctx, tx, schema)
	})
	if err != nil {
		return nil, fmt.Errorf("read figures: %w", err)
	}
	return f, nil
}

func (f *Figures) read(ctx context.Context, tx pgx.Tx, schema string) error {
	in := func(sql string) string {
		return strings.ReplaceAll(sql, "outbox.", pgx.Identifier{schema}.Sanitize()+".")
	}
	if err := tx.QueryRow(ctx, sqlWritten).Scan(&f.WrittenBytes); err != nil {
		return err
	}
	if err := f.compareClocks(ctx, tx); err != nil {
		return err
	}
	if err := f.Transactions.read(ctx, tx); err != nil {
		return err
	}
	if err := f.Replication.read(ctx, tx, f.slotName); err != nil {
		return err
	}
	var err error
	if f.Writers, err = readWriters(ctx, tx, f.slotName); err != nil {
		return err
	}
	if err := tx.QueryRow(ctx, in(sqlOldestUnknown), Bound).Scan(&f.OldestUnknownSeconds); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, in(sqlDeadLetterReasons), Bound)
	if err != nil {
		return err
	}
	if f.DeadLetterReasons, err = pgx.CollectRows(rows, pgx.RowToStructByPos[ReasonCount]); err != nil {
		return err
	}
	if rows, err = tx.Query(ctx, sqlTables, schema); err != nil {
		return err
	}
	f.Tables, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Table])
	return err
}

const sqlWritten = `select pg_wal_lsn_diff(here.lsn, '0/0')::bigint from ` + sqlHere

const sqlOldestUnknown = `
select extract(epoch from clock_timestamp() - min(unknown_since))::float8
from (select unknown_since from outbox.deferred order by message_id limit $1::bigint) d`

const sqlDeadLetterReasons = `
select reason, count(*) from (select reason from outbox.dead_letters where reason <> 'discarded' order by message_id limit $1::bigint) d
group by reason order by reason`

// Of a table that was partitioned, all parts.
const sqlTables = `
select c.relname::text, sum(pg_total_relation_size(part))::bigint, sum(pg_stat_get_dead_tuples(part))::bigint,
	sum(pg_stat_get_live_tuples(part))::bigint
from pg_class c join pg_namespace n on n.oid = c.relnamespace,
	lateral (select c.oid as part union select relid from pg_partition_tree(c.oid)) parts
where n.nspname = $1 and c.relkind in ('r', 'p')
	and c.relname in ('messages', 'dispatched', 'deferred', 'dead_letters', 'withdrawn', 'claims', 'relays', 'queues', 'envelopes')
group by c.relname order by c.relname`
