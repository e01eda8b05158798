package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
)

// cluster is which server it is, and which of its histories. A failover keeps
// the system identifier and raises the timeline; a restore with pg_dump, a new
// initdb and pg_upgrade give another identifier.
type cluster struct {
	system   string // the system identifier; empty: not known
	timeline int32  // 0: not known
}

func (c cluster) String() string {
	return fmt.Sprintf("system %s on timeline %d", c.system, c.timeline)
}

// ClusterError holds dispatching: the server is not the one that the relay was on
// last, so its messages may be a copy of some that went out long ago. It lasts
// until an operator adopts the server, or the relay finds the other one again.
type ClusterError struct {
	// Slot is the slot whose row in relays says otherwise.
	Slot string
	// Known and KnownTimeline are the system identifier and the timeline that
	// the relay was on last, Here and HereTimeline those of the server.
	Known, Here                 string
	KnownTimeline, HereTimeline int32
}

// Error implements error.
func (e *ClusterError) Error() string {
	if e.Known != e.Here {
		return fmt.Sprintf("this is another cluster, system %s, the relay was on %s: dispatching is held, no slot is made", e.Here, e.Known)
	}
	return fmt.Sprintf("this server is on timeline %d, older than timeline %d that the relay was on: dispatching is held", e.HereTimeline, e.KnownTimeline)
}

// Hint is a sentence that says what to do.
func (e *ClusterError) Hint() string {
	if e.Known != e.Here {
		return "a restore, a copy or an upgrade of the database? if its messages are to go out, run `outbox-relay adopt`, which shows how many; " +
			"if not, point the relay at the right database"
	}
	return "an old primary or a copy? if a newer one is at work, point the relay there and fence this one; " +
		"if this one is to go on, run `outbox-relay adopt`, which shows what it would send"
}

// recorded is what the relay's row says of the server.
type recorded struct {
	cluster

	adopted bool // an operator wants the server of the row, whatever was before
}

// allow decides whether the stream of a server may be taken. What the relay's
// row says counts, and what this process has seen: the row of an old primary
// knows nothing of the promotion of another.
func (r *Relay) allow(ctx context.Context, system string, timeline int32) error {
	here := cluster{system, timeline}
	if r.dialer.stream.follow(here) {
		r.moveStores(ctx)
	}
	row, err := r.writing.recorded(ctx)
	if err != nil {
		return err
	}
	last := row.latest(r.last)
	switch {
	case row.adopted && row.cluster == here:
		r.log.Warn("adopted", zap.String(keySystem, here.system), zap.Int32(keyTimeline, here.timeline))
	case last.system != "" && (last.system != here.system || last.timeline > here.timeline):
		r.objection = &ClusterError{
			Slot: r.cfg.Slot, Known: last.system, KnownTimeline: last.timeline, Here: here.system, HereTimeline: here.timeline,
		}
		return r.objection
	case last.system != "" && last.timeline != 0 && last.timeline < here.timeline:
		r.log.Warn("server was promoted since the last session, messages whose marks were lost are sent again",
			zap.Int32(keyTimelineBefore, last.timeline), zap.Int32(keyTimeline, here.timeline))
	}
	r.last, r.objection = here, nil
	return nil
}

// latest is where the relay was last, according to the row and to memory.
func (row recorded) latest(seen cluster) cluster {
	switch row.system {
	case "":
		return seen
	case seen.system:
		return cluster{row.system, max(row.timeline, seen.timeline)}
	}
	return row.cluster
}

// moveStores drops the connections to the server before. What the queue
// accepted there and is not marked is forgotten: a promoted server may lack
// these messages and give their numbers to others.
func (r *Relay) moveStores(ctx context.Context) {
	for _, s := range []*store{r.writing, r.reading, r.loading, r.sweeping} {
		s.close(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.carried)
}

// recorded reads the relay's row; without one, nothing is known.
func (s *store) recorded(ctx context.Context) (row recorded, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		err := conn.QueryRow(ctx, s.sql.cluster, s.slot).Scan(&row.system, &row.timeline, &row.adopted)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil {
		return recorded{}, fmt.Errorf("look up the cluster of slot %q: %w", s.slot, err)
	}
	return row, nil
}

const sqlCluster = `
select coalesce(system_identifier::text, ''), coalesce(timeline, 0), adopted_at is not null
from outbox.relays where slot = $1`

// patience is how long a connection to one host may take. Of several, one that is
// dead without a word must leave time for the next.
func patience(config *pgx.ConnConfig) time.Duration {
	others := 0
	for _, way := range config.Fallbacks {
		if way.Host != config.Host || way.Port != config.Port {
			others++
		}
	}
	share := writeTimeout / time.Duration(others+2)
	if others == 0 || config.ConnectTimeout > 0 && config.ConnectTimeout < share {
		return config.ConnectTimeout
	}
	return share
}

// errElsewhere says that a connection leads to another server than the stream
// does. The session is over then: one of the two is not the primary any more.
var errElsewhere = errors.New("the stream comes from another server")

// compass keeps connections to the server that the stream comes from, where a
// list of hosts, a name or a pooler can lead to several. The zero compass knows
// none and takes any.
type compass struct {
	mu   sync.Mutex
	here cluster
}

// follow says from which server the stream comes, and reports whether that is
// another one than before.
func (c *compass) follow(here cluster) (moved bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	moved = c.here != here
	c.here = here
	return moved
}

// at is where the stream comes from.
func (c *compass) at() cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.here
}

// primary returns what examines a new connection. After an error of it the next
// host is tried. Without a stream to go by, the connection string decides.
func (c *compass) primary(otherwise pgconn.ValidateConnectFunc) pgconn.ValidateConnectFunc {
	return func(ctx context.Context, conn *pgconn.PgConn) error {
		here := c.at()
		switch {
		case here.system != "":
			return here.expect(ctx, conn)
		case otherwise != nil:
			return otherwise(ctx, conn)
		}
		return nil
	}
}

// expect returns errElsewhere if the connection leads to another server.
func (c cluster) expect(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx, sqlHere).ReadAll()
	if err != nil {
		return err
	}
	row := results[0].Rows[0]
	if system, timeline := string(row[0]), string(row[1]); system != c.system || timeline != fmt.Sprint(c.timeline) {
		return fmt.Errorf("%w: SQL to system %s on timeline %s, the stream from %s", errElsewhere, system, timeline, c)
	}
	return nil
}

// The timeline is that of the WAL being written: the one in the control file is
// old until the first checkpoint after a promotion. A standby writes none.
const sqlTimeline = `('x' || left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::int`

const sqlHere = `
select (select system_identifier::text from pg_catalog.pg_control_system()),
	case when pg_catalog.pg_is_in_recovery() then 0 else ` + sqlTimeline + ` end`
