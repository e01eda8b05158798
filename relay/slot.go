package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// slotServed reports whether a slot of our name served a relay before, and no
// other has been announced since: a slot that is missing then was dropped, or
// the server never had it.
func (s *store) slotServed(ctx context.Context) (served bool, err error) {
	sql := `select reconciled_at is not null from ` + pgx.Identifier{s.schema}.Sanitize() + `.relays where slot = $1`
	err = s.with(ctx, func(conn *pgx.Conn) error {
		err := conn.QueryRow(ctx, sql, s.slot).Scan(&served)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("look up slot %q: %w", s.slot, err)
	}
	return served, nil
}
