package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// sqlHorizons finds who keeps old rows from vacuum, those first that keep the
// oldest. With $2 only those count that keep rows of the outbox: sessions of this
// database, and slots that keep more than the catalogs. Vacuum does not wait for
// other vacuums. A role that may not see the sessions of others gets its own only.
const sqlHorizons = `
	select holder, age from (
		select 'slot ' || quote_ident(slot_name) as holder, greatest(age(xmin), age(catalog_xmin)) as age, xmin is not null as of_tables
		from pg_replication_slots
		union all
		select 'prepared transaction ' || quote_literal(gid), age(transaction), database = current_database() from pg_prepared_xacts
		union all
		select format('pid %s of %s, %s, %s, open for %s', pid, usename, coalesce(nullif(application_name, ''), 'no application name'),
				state, date_trunc('second', now() - xact_start)),
			age(backend_xmin), datname = current_database()
		from pg_stat_activity
		where backend_xmin is not null and backend_type = 'client backend' and xact_start < now() - $3 * interval '1 second'
	) h
	where age >= $1 and (of_tables or not $2) order by age desc limit 5`

// horizonMoment is how long a transaction is open at least that is called what
// holds vacuum back.
const horizonMoment = time.Minute

// horizons are those who keep rows of at least so many transactions ago.
func (p *patient) horizons(ctx context.Context, least int64, ofTables bool) (names []string, err error) {
	rows, err := p.conn.Query(ctx, sqlHorizons, least, ofTables, min(horizonMoment, p.long).Seconds())
	if err != nil {
		return nil, err
	}
	var name string
	var age int64
	_, err = pgx.ForEachRow(rows, []any{&name, &age}, func() error {
		names = append(names, fmt.Sprintf("%s (%d transactions)", name, age))
		return nil
	})
	return names, err
}

// vacuumHolders looks for what keeps very old rows: slots of standbys and others,
// forgotten prepared transactions, and sessions.
func vacuumHolders(ctx context.Context, p *patient) (finding, error) {
	names, err := p.horizons(ctx, p.many+1, false)
	if err != nil || len(names) == 0 {
		return pass("none"), err
	}
	return finding{
		status: Warn, observed: strings.Join(names, ", "),
		message: "old rows cannot be removed: tables and catalogs grow, and in the end the server runs out of transaction numbers",
		remedy: "let somebody read these slots, or drop those that nobody needs; commit or roll back prepared transactions; let their owners " +
			"end these sessions' transactions, or end them with pg_terminate_backend",
	}, nil
}

// heldBack says who keeps vacuum from the rows of the outbox; empty if nobody
// does, as far as the role sees that.
func (p *patient) heldBack(ctx context.Context) (string, error) {
	names, err := p.horizons(ctx, 1, true)
	switch {
	case err != nil:
		return "", err
	case len(names) > 0:
		return "; " + names[0] + " holds it back", nil
	}
	sees, err := p.seesSessions(ctx)
	if err == nil && !sees {
		return "; which sessions hold it back only a role with pg_read_all_stats sees", nil
	}
	return "", err
}
