package explain

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/plural"
)

// UnknownError says that there is no such message.
type UnknownError struct{ Summary string }

func (e *UnknownError) Error() string { return e.Summary }

// Err is an [*UnknownError] if the message is unknown.
func (r *Report) Err() error {
	if r.State == Unknown {
		return &UnknownError{r.Summary}
	}
	return nil
}

// Both ends of a primary key.
const sqlEnds = `select coalesce(min(message_id), 0), coalesce(max(message_id), 0) from outbox.message_status`

// Sessions of others show their beginning only to members of pg_read_all_stats.
const sqlWriters = `
select count(distinct l.virtualtransaction), min(a.xact_start), (array_agg(l.pid order by a.xact_start nulls last, l.pid))[1]
from pg_locks l
join pg_class t on t.oid = l.relation
join pg_namespace n on n.oid = t.relnamespace
left join pg_stat_activity a on a.pid = l.pid
where l.mode = 'RowExclusiveLock' and n.nspname = $1 and t.relname = 'messages'
	and l.database = (select oid from pg_database where datname = current_database())`

// readPossibilities says what it can mean that there is no such message.
func (r *reader) readPossibilities(ctx context.Context, name string) error {
	r.State, r.MessageID = Unknown, 0
	var lowest, highest, writers int64
	if err := r.tx.QueryRow(ctx, r.in(sqlEnds)).Scan(&lowest, &highest); err != nil {
		return err
	}
	var since *time.Time
	var pid *int
	if err := r.tx.QueryRow(ctx, sqlWriters, r.cfg.Schema).Scan(&writers, &since, &pid); err != nil {
		return err
	}
	id, err := strconv.ParseInt(name, 10, 64)
	byID := err == nil && !r.cfg.Key
	add := func(format string, args ...any) {
		r.Possibilities = append(r.Possibilities, fmt.Sprintf(format, args...))
	}
	if writers > 0 {
		text := "its transaction has not committed: " + plural.Of(writers, "transaction that has", "transactions that have") + " written to the table and not ended"
		if since != nil && pid != nil {
			text += fmt.Sprintf(", the oldest since %s in process %d", moment(*since), *pid)
		}
		add("%s", text)
	}
	switch {
	case byID && id > highest:
		add("the number was not given to a message yet: the highest one in the table is %d", highest)
	case byID:
		add("its transaction rolled back: a number is not given out twice")
	default:
		add("its transaction rolled back, or it was never written with this key")
	}
	switch {
	case r.cfg.Retention == 0:
	case byID && id < lowest:
		add("it was dispatched and removed: the lowest number that is kept is %d, and RELAY_RETENTION is %s", lowest, days(r.cfg.Retention))
	case !byID || id <= highest:
		add("it was dispatched more than %s ago (RELAY_RETENTION) and removed with its outcome", days(r.cfg.Retention))
	}
	if !byID {
		add("its row was deleted: what became of it is known by its number only")
		here, err := r.here(ctx)
		if err != nil {
			return err
		}
		add("it was written elsewhere: this is schema %s of database %s on %s. A server that the outbox has left may still have it "+
			"(\"Another cluster\" in docs/operations.md)", r.cfg.Schema, r.tx.Conn().Config().Database, here)
	}
	return nil
}

// here is how one tells this server from others. Behind a proxy the address alone
// would say little.
func (r *reader) here(ctx context.Context) (text string, err error) {
	err = r.tx.QueryRow(ctx, `
		select coalesce('server ' || host(inet_server_addr()) || ', port ' || inet_server_port(), 'this machine''s server')
			|| ', system ' || (select system_identifier from pg_control_system())`).Scan(&text)
	return text, err
}
