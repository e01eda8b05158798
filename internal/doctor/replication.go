package doctor

import (
	"context"
	"strings"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// replicationOpens opens the connection that the stream will use: only trying
// shows a pooler, or a pg_hba.conf that does not know it.
func replicationOpens(ctx context.Context, p *patient) (finding, error) {
	id, err := p.openStream(ctx)
	if err == nil {
		return pass("system " + id.system + ", timeline " + id.timeline), nil
	}
	switch text := oneLine(err); {
	case pgtext.SQLState(err) == "42501" && !p.mayReplicate:
		return skip("D04 failed"), nil
	case strings.Contains(text, "unsupported startup parameter"), pgtext.SQLState(err) == "42601":
		// The second is a pooler that drops the parameter: what comes back is an
		// ordinary session, which does not know the command.
		return finding{
			status: Fail, observed: text,
			message: "a connection pooler answers at " + address(p.cfg.Replication),
			remedy:  "set RELAY_REPLICATION_URL to the direct address of the server; DATABASE_URL may stay with the pooler",
		}, nil
	}
	return refusal(p.cfg.Replication, err), nil
}
