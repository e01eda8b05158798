package doctor

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
	"github.com/outbox-relay/outbox-relay/relay/poll"
)

// Config says where to look.
type Config struct {
	// Schema, Slot and Publication are the names that the relay uses.
	Schema, Slot, Publication string
	// Database leads to the database as the relay's role, Replication is for
	// the stream.
	Database, Replication *pgx.ConnConfig
	// SenderTimeout is for how long the server keeps the slot for a relay that is gone
	// without a word; 0 stands for the default.
	SenderTimeout time.Duration
	// Role is the relay's role, if an administrator looks for it; empty means the
	// role of the connections. Its rights are looked up instead of tried.
	Role string
	// LeaveSlot keeps the slot from being looked into, for which a relay that wants
	// it just then would have to wait.
	LeaveSlot bool
	// LeaveQueue keeps the queue from being asked.
	LeaveQueue bool
	// Buttons says that the relay's page may change something, for which its role
	// needs rights of its own.
	Buttons bool
	// Poll has the settings of poll mode; nil if the relay reads the WAL.
	Poll *poll.Config
	// Queue says where the queue is. QueueSettings is what is wrong with that;
	// then the queue is not asked.
	Queue         infrai.Config
	QueueSettings error
}

// Run makes every check. It returns a report in any case.
func Run(ctx context.Context, cfg Config) *Report {
	// Of several hosts the relay takes the primary.
	cfg.Database = cdc.Primary(ctx, cfg.Database, connectTimeout)
	cfg.Replication = cdc.Primary(ctx, cfg.Replication, connectTimeout)
	p := &patient{cfg: cfg, long: longTransaction, many: manyTransactions}
	defer p.close()
	report := &Report{SchemaVersion: 1}
	for i := range checks {
		if checks[i].poll && cfg.Poll == nil {
			continue
		}
		report.add(checks[i].examine(ctx, p, report))
	}
	return report
}

// patient is what the checks look at, and what they pass on to later ones.
type patient struct {
	cfg Config

	conn    *pgx.Conn // set by D01
	version int       // server_version_num, set by D01
	vendor  vendor    // set by D01

	// The answer of the replication connection, asked for once.
	stream    *identity
	streamErr error
	asked     bool

	long time.Duration // from when on a transaction is a long one
	many int64         // how many transactions old rows may be kept for

	mayReplicate bool  // set by D04
	held         bool  // set by D46: a relay does nothing here
	slot         *slot // set by D09; nil if there is none
}

// role is whose rights are looked at.
func (p *patient) role() string {
	if p.cfg.Role != "" {
		return p.cfg.Role
	}
	return p.conn.Config().User
}

func (p *patient) close() {
	if p.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = p.conn.Close(ctx)
}
