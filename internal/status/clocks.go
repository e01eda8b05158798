package status

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// compareClocks asks the server for the time.
func (f *Figures) compareClocks(ctx context.Context, tx pgx.Tx) error {
	asked := time.Now()
	var server time.Time
	if err := tx.QueryRow(ctx, "select clock_timestamp()").Scan(&server); err != nil {
		return err
	}
	f.Ahead = ahead(server, asked, time.Now()).Seconds()
	return nil
}

// ahead is how far the server's clock is ahead of ours at least: what lies between
// question and answer proves nothing.
func ahead(server, asked, answered time.Time) time.Duration {
	switch {
	case server.After(answered):
		return server.Sub(answered)
	case server.Before(asked):
		return server.Sub(asked)
	}
	return 0
}
