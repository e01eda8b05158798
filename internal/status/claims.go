package status

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Claims is the table of what consumers have handled.
type Claims struct {
	// Rows is an estimate: what vacuum or analyze saw last, and before that what
	// the statistics count.
	Rows int64 `json:"rows"`
	// Bytes is the size of the table with its indexes.
	Bytes int64 `json:"bytes"`
	// OldestExpiredSeconds is how long ago the oldest claim expired that has not
	// been removed; nil if there is none, or if the role may not look. A relay
	// looks for expired claims once a minute.
	OldestExpiredSeconds *float64 `json:"oldest_expired_seconds"`
}

const sqlClaims = `
select coalesce(nullif(c.reltuples, -1)::bigint, pg_stat_get_live_tuples(c.oid)), pg_total_relation_size(c.oid),
	has_column_privilege(c.oid, 'expires_at', 'select')
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1 and c.relname = 'claims'`

// Reads the beginning of the index claims_expires_at.
const sqlOldestExpired = `
select extract(epoch from clock_timestamp() - (
	select expires_at from outbox.claims where expires_at < now() and isfinite(expires_at) order by expires_at limit 1
))::float8`

func (r *Report) readClaims(ctx context.Context, tx pgx.Tx, schema string, in func(string) string) error {
	var mayLook bool
	if err := tx.QueryRow(ctx, sqlClaims, schema).Scan(&r.Claims.Rows, &r.Claims.Bytes, &mayLook); err != nil || !mayLook {
		return err
	}
	return tx.QueryRow(ctx, in(sqlOldestExpired)).Scan(&r.Claims.OldestExpiredSeconds)
}

func (c Claims) text() string {
	text := fmt.Sprintf("about %d, %s", c.Rows, size(c.Bytes))
	if c.OldestExpiredSeconds != nil {
		text += fmt.Sprintf(" (oldest expired %s ago)", age(*c.OldestExpiredSeconds))
	}
	return text
}
