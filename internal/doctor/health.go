package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/status"
)

const (
	// longTransaction is longer than applications keep one open on purpose.
	longTransaction = 5 * time.Minute
	// oldOutcome is longer than a message takes on its way, whatever the load.
	oldOutcome = time.Minute
	// manyTransactions is what slots and prepared transactions may lag behind.
	manyTransactions = 10_000_000
	// oldNumber is half of what makes the server stop.
	oldNumber = 1_000_000_000
	// manyDead rows are worth a vacuum.
	manyDead = 100_000
)

// backlog looks for messages that wait, as the status counts them.
func backlog(ctx context.Context, p *patient) (finding, error) {
	r, err := status.Read(ctx, p.conn, p.cfg.Schema, p.cfg.Slot)
	if err != nil {
		return finding{}, err
	}
	observed := fmt.Sprintf("%d without outcome, %d deferred, %d dead letters", r.WithoutOutcome.Count, r.Deferred.Count, r.DeadLetters.Count)
	oldest := r.WithoutOutcome.OldestSeconds
	if oldest == nil || *oldest <= oldOutcome.Seconds() {
		return pass(observed), nil
	}
	age := time.Duration(*oldest * float64(time.Second)).Round(time.Second)
	f := finding{
		status: Warn, observed: fmt.Sprintf("%s; the oldest without outcome is %v old", observed, age),
		message: "messages wait that no relay has dealt with",
	}
	f.remedy = whoDeals(r)
	return f, nil
}

// whoDeals says what to do about messages that wait. A server on which nobody is at
// work may be one that the relay has left for another: what waits there, and is not
// on the other one, is lost with it, and a relay that is started there sends copies.
func whoDeals(r *status.Report) string {
	const look = "see `outbox-relay status` and `outbox-relay explain`"
	switch {
	case r.Held != "":
		return "the relay sends nothing here before this server is adopted: D46"
	case r.Slot != nil && r.Slot.Making != nil:
		return "the slot is being made: D09"
	case r.AtWork():
		return "a relay is at work: mend what fails here; " + look
	case r.Relay == nil:
		return "start the relay; " + look
	}
	return fmt.Sprintf("no relay is at work here, the last one wrote its row at %s. If the outbox was moved to another server, start none here: what waits "+
		"here and not there has to be copied (\"Another cluster\" in docs/operations.md). Otherwise start the relay; %s",
		r.Relay.UpdatedAt.UTC().Format(time.RFC3339), look)
}

// sqlWriters finds transactions that have written, prepared ones too. A role that
// may not see others gets its own only.
const sqlWriters = `
	select format('pid %s of %s, %s, %s', pid, usename, coalesce(nullif(application_name, ''), 'no application name'), state),
		extract(epoch from now() - xact_start)::float8, format('select pg_terminate_backend(%s)', pid)
	from pg_stat_activity
	where backend_xid is not null and pid <> pg_backend_pid() and xact_start < now() - $1 * interval '1 second'
	union all
	select format('prepared transaction %L of %s in database %I', gid, owner, database), extract(epoch from now() - prepared)::float8, ''
	from pg_prepared_xacts where prepared < now() - $1 * interval '1 second'
	order by 2 desc limit 5`

// openTransaction is one that has written.
type openTransaction struct {
	name string
	open time.Duration
	end  statements // what ends it; none for a prepared one: only its owner knows how
}

// writersOpen are the transactions that are open for so long, the oldest first. A
// role without pg_read_all_stats does not see when those of others began.
func (p *patient) writersOpen(ctx context.Context, least time.Duration) (found []openTransaction, err error) {
	rows, err := p.conn.Query(ctx, sqlWriters, least.Seconds())
	if err != nil {
		return nil, err
	}
	var name, end string
	var seconds float64
	_, err = pgx.ForEachRow(rows, []any{&name, &seconds, &end}, func() error {
		t := openTransaction{name: name, open: time.Duration(seconds * float64(time.Second))}
		if end != "" {
			t.end = script(end)
		}
		found = append(found, t)
		return nil
	})
	return found, err
}

func (p *patient) seesSessions(ctx context.Context) (sees bool, err error) {
	err = p.conn.QueryRow(ctx, `
		select pg_has_role(current_user, oid, 'usage') from pg_roles where rolname = 'pg_read_all_stats'`).Scan(&sees)
	return sees, err
}

// longWriters looks for transactions that a relay waits for, and for those that
// hold back what the server can forget of its WAL, the making of a slot, and vacuum.
func longWriters(ctx context.Context, p *patient) (finding, error) {
	// A role sees its own sessions wait without any right.
	if found, err := p.blockers(ctx); err != nil || len(found) > 0 {
		return blocked(found), err
	}
	sees, err := p.seesSessions(ctx)
	switch {
	case err != nil:
		return finding{}, err
	case !sees:
		return skip("needs pg_read_all_stats: grant pg_read_all_stats to " + ident(p.conn.Config().User)), nil
	}
	writers, err := p.writersOpen(ctx, p.long)
	if err != nil || len(writers) == 0 {
		return pass("none"), err
	}
	var names []string
	for _, w := range writers {
		names = append(names, fmt.Sprintf("%s, open for %v", w.name, w.open.Round(time.Second)))
	}
	return finding{
		status: Warn, observed: strings.Join(names, "; "),
		message: "long transactions keep WAL from being forgotten, a new slot from being made, and vacuum from its work",
		remedy: "let their owners end them; pg_terminate_backend ends a session; a prepared transaction ends in a session of its own database, " +
			"with commit prepared or rollback prepared, and only its owner knows which is right",
	}, nil
}

// wraparound looks how far the server is from refusing writes.
func wraparound(ctx context.Context, p *patient) (finding, error) {
	var database string
	var age int64
	err := p.conn.QueryRow(ctx, `
		select datname::text, age(datfrozenxid)::bigint from pg_database order by 2 desc limit 1`).Scan(&database, &age)
	if err != nil {
		return finding{}, err
	}
	return numbersLeft(database, age), nil
}

func numbersLeft(database string, age int64) finding {
	f := finding{
		status: Warn, observed: fmt.Sprintf("%d, in database %s", age, ident(database)),
		message: "half of the transaction numbers are used up; without them the server takes no writes",
		remedy:  "mend what holds vacuum back (D33, D34), then run `vacuum` in that database, as superuser",
	}
	if age <= oldNumber {
		return pass(f.observed)
	}
	return f
}
