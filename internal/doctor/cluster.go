package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// sameCluster compares the server with the one that the relay was on last.
func sameCluster(ctx context.Context, p *patient) (finding, error) {
	var known, here string
	var knownTimeline, timeline int
	err := p.conn.QueryRow(ctx, p.in(`
		select coalesce(r.system_identifier, c.system_identifier)::text, coalesce(r.timeline, 0), c.system_identifier::text,
			('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int
		from outbox.relays r, pg_control_system() c where r.slot = $1`), p.cfg.Slot).
		Scan(&known, &knownTimeline, &here, &timeline)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return pass("no relay has run yet"), nil
	case err != nil:
		return finding{}, err
	case known != here:
		p.held = true
		return held(fmt.Sprintf("system %s, the relay was on %s", here, known),
			"this is another cluster than the relay was on: a restore, a copy or an upgrade? It sends nothing here"), nil
	case knownTimeline > timeline:
		p.held = true
		return held(fmt.Sprintf("timeline %d, the relay was on %d", timeline, knownTimeline),
			"this server is on an older history than the relay was on: an old primary? It sends nothing here"), nil
	}
	return pass(fmt.Sprintf("system %s on timeline %d", here, timeline)), nil
}

func held(observed, message string) finding {
	return finding{
		status: Fail, observed: observed, message: message,
		remedy: "if the relay is to work here, `outbox-relay adopt` shows what it would send, and lets it with --yes; if not, lead it to the right server",
	}
}
