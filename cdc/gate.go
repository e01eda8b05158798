package cdc

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// selectGone finds the standbys that slots made for failover wait for, and that
// are not connected. Servers before 17 do not know the setting.
const selectGone = `
	select pg_catalog.btrim(s.name)
	from pg_catalog.unnest(pg_catalog.string_to_array(
		coalesce(pg_catalog.current_setting('synchronized_standby_slots', true), ''), ',')) with ordinality s (name, n)
	where pg_catalog.btrim(s.name) <> '' and not exists (
		select from pg_catalog.pg_replication_slots r where r.slot_name = pg_catalog.btrim(s.name) and r.active)
	order by s.n`

// examineGate says whether delivery waits for a standby that is gone. The stream
// looks well then: the server answers, and sends no message.
func examineGate(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, selectGone)
	if err != nil {
		return fmt.Errorf("look for standbys: %w", err)
	}
	gone, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look for standbys: %w", err)
	}
	if len(gone) > 0 {
		return gateError(strings.Join(gone, ", "))
	}
	return nil
}

// gateError names the standbys for which delivery waits.
type gateError string

func (e gateError) Error() string {
	return fmt.Sprintf("the server sends nothing before standby %s has it, which is not connected (synchronized_standby_slots)", string(e))
}

// Hint is a sentence that says what to do.
func (gateError) Hint() string {
	return "bring the standby back; if it is gone for good, take it out of synchronized_standby_slots and reload Postgres: " +
		"`outbox-relay doctor` prints the statements (D37)"
}
