package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// replicationOpens opens the connection that the stream will use: only trying
// shows a pooler, or a pg_hba.conf that does not know it.
func replicationOpens(ctx context.Context, p *patient) (finding, error) {
	id, err := p.openStream(ctx)
	if err == nil {
		return p.patience(pass("system " + id.system + ", timeline " + id.timeline)), nil
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

const (
	// usualSilence is the default of RELAY_WAL_SENDER_TIMEOUT.
	usualSilence = 15 * time.Second
	// longSilence is more than the worst network asks for.
	longSilence = 2 * time.Minute
)

// patience looks for how long the server keeps the slot for a relay that is gone
// without a word. It cannot be seen on the server before it hurts.
func (p *patient) patience(f finding) finding {
	if p.cfg.SenderTimeout <= longSilence {
		return f
	}
	return finding{
		status: Warn, observed: fmt.Sprintf("%s; RELAY_WAL_SENDER_TIMEOUT is %v", f.observed, p.cfg.SenderTimeout),
		expected: fmt.Sprintf("a walsender of the database, which gives up a silent relay within %v", longSilence),
		message:  fmt.Sprintf("a relay that hangs, or whose host is gone, keeps the slot for %v: no message goes out, and no other relay takes over", p.cfg.SenderTimeout),
		remedy:   fmt.Sprintf("take RELAY_WAL_SENDER_TIMEOUT out of the settings (its default is %v), and restart the relays, one after the other", usualSilence),
	}
}
