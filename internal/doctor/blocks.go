package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// blockedLook is how often locks are looked at, and how long a session of a
	// relay has to wait for one at least: shorter waits are everyday life.
	blockedLook = 200 * time.Millisecond
	// blockedFor bounds that: between two attempts a relay waits for nobody.
	blockedFor = 2 * time.Second
)

// sqlBlocking finds the transactions for which sessions of relays wait, the oldest
// first. A relay that waits for another session of a relay is not told of.
const sqlBlocking = `
	select coalesce(b.pid, 0), coalesce(nullif(quote_ident(b.usename), ''), 'a role that is not shown'),
		coalesce(nullif(b.application_name, ''), 'no application name'), coalesce(b.state, 'state not shown'),
		extract(epoch from clock_timestamp() - b.xact_start)::float8
	from (
		select distinct unnest(pg_blocking_pids(a.pid)) as pid
		from pg_stat_activity a join pg_locks w on w.pid = a.pid and not w.granted
		where a.application_name like 'outbox-relay%' and a.application_name <> 'outbox-relay doctor' and a.datname = current_database()
			and w.waitstart < clock_timestamp() - $1 * interval '1 second'
	) blocking left join pg_stat_activity b on b.pid = blocking.pid
	where coalesce(b.application_name, '') not like 'outbox-relay%'
	order by b.xact_start limit 5`

// sqlHolders finds the transactions that have locks for which a relay may have to
// wait; none if no relay is at work.
const sqlHolders = `
	select distinct l.virtualtransaction || ' ' || coalesce(l.pid, 0) from pg_locks l
	where l.granted and l.mode <> 'AccessShareLock' and l.pid is distinct from pg_backend_pid()
		and (l.locktype = 'transactionid' or l.locktype = 'relation' and l.database = (select oid from pg_database where datname = current_database()))
		and exists (select from pg_stat_activity where application_name like 'outbox-relay%'
			and application_name <> 'outbox-relay doctor' and datname = current_database())`

// blocking is a transaction for which a relay waits.
type blocking struct {
	pid                      int // 0 for a prepared one
	role, application, state string
	seconds                  *float64
}

// blockers are those for which sessions of a relay wait. While the same
// transactions stay open it looks again, for a relay gives up and tries anew.
func (p *patient) blockers(ctx context.Context) (found []blocking, err error) {
	ticker := time.NewTicker(blockedLook)
	defer ticker.Stop()
	var holders []string
	for look := range int(blockedFor / blockedLook) {
		if found, err = p.blocking(ctx); err != nil || len(found) > 0 {
			return found, err
		}
		now, err := p.holders(ctx)
		if err != nil {
			return nil, err
		}
		if look > 0 {
			now = slices.DeleteFunc(now, func(h string) bool { return !slices.Contains(holders, h) })
		}
		if holders = now; len(holders) == 0 {
			return nil, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, nil
}

func (p *patient) blocking(ctx context.Context) ([]blocking, error) {
	rows, err := p.conn.Query(ctx, sqlBlocking, blockedLook.Seconds())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (b blocking, err error) {
		return b, row.Scan(&b.pid, &b.role, &b.application, &b.state, &b.seconds)
	})
}

func (p *patient) holders(ctx context.Context) ([]string, error) {
	rows, err := p.conn.Query(ctx, sqlHolders)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func (b *blocking) String() string {
	if b.pid == 0 {
		return "a prepared transaction (see pg_prepared_xacts)"
	}
	text := fmt.Sprintf("pid %d of %s, %s, %s", b.pid, b.role, b.application, b.state)
	if b.seconds != nil {
		text += fmt.Sprintf(", open for %v", time.Duration(*b.seconds*float64(time.Second)).Round(100*time.Millisecond))
	}
	return text
}

// blocked says what to do about transactions for which a relay waits.
func blocked(found []blocking) finding {
	var names, list []string
	for _, b := range found {
		names = append(names, b.String())
		if b.pid != 0 {
			list = append(list, fmt.Sprintf("select pg_terminate_backend(%d)", b.pid))
		}
	}
	return finding{
		status: Warn, observed: "a relay waits for " + strings.Join(names, "; "),
		message: "the relay waits for a transaction: until that ends, outcomes cannot be written and nothing new is taken in, or a new slot is not made",
		remedy: "let its owner end it, or end its session, as the same role or an administrator: what it has not committed is undone; " +
			"a prepared transaction ends with commit prepared or rollback prepared, and only its owner knows which is right",
		sql: script(list...),
	}
}
