package doctor

import (
	"context"
	"strings"

	"github.com/outbox-relay/outbox-relay/internal/status"
)

// leftovers looks for slots that relays of this outbox used under other names:
// nobody reads them, and each keeps WAL until the disk is full.
func leftovers(ctx context.Context, p *patient) (finding, error) {
	found, err := status.EarlierSlots(ctx, p.conn, p.cfg.Schema, p.cfg.Slot)
	if err != nil {
		return finding{}, err
	}
	if len(found) == 0 {
		return pass("none"), nil
	}
	var names, list []string
	for i := range found {
		names = append(names, ident(found[i].Name)+" ("+found[i].Retained()+")")
		list = append(list, found[i].Drop())
	}
	return finding{
		status: Warn, observed: strings.Join(names, ", "),
		message: "relays of this outbox used slots of other names, which nobody reads now: they keep WAL, and the disk can fill up",
		remedy:  "if no relay is to run with that name again, drop them, as a role that may replicate; messages are not lost by it",
		sql:     script(list...),
	}, nil
}
