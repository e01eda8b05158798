package cdc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// hosts finds the primary in a connection string with several hosts, whatever its
// target_session_attrs. A standby is not it, and neither is a primary that was
// left behind by a promotion: it still takes writes, and it is often the first
// in the list.
type hosts struct {
	mu      sync.Mutex
	newest  history // of the primary
	lenient bool    // take what is there, if only old ones are
}

// history is one of the histories of a cluster: each promotion begins another.
type history struct {
	system   string
	timeline int32
}

var errStale = errors.New("server was left behind by a promotion")

// known reports whether any primary was seen.
func (h *hosts) known() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.newest.system != ""
}

// settle says which primary it is from now on.
func (h *hosts) settle(system string, timeline int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.newest = history{system, timeline}
}

// beLenient says whether an old primary will do.
func (h *hosts) beLenient(lenient bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lenient = lenient
}

// chooseIn lets connections of a configuration with several hosts try the next
// one until they reach the primary. With one host there is nothing to choose:
// what is wrong with it is said with more words later. All of it may take
// timeout.
func (h *hosts) chooseIn(c *pgx.ConnConfig, timeout time.Duration) *pgx.ConnConfig {
	each := len(apart(c))
	if each < 2 {
		return c
	}
	if share := share(timeout, each); c.ConnectTimeout == 0 || c.ConnectTimeout > share {
		c.ConnectTimeout = share
	}
	wanted := c.ValidateConnect
	c.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if wanted != nil {
			if err := wanted(ctx, conn); err != nil {
				return err
			}
		}
		return h.validate(ctx, conn)
	}
	return c
}

// share is the time for one of several hosts: one that is dead must leave enough
// for the next, and for the questions to that.
func share(timeout time.Duration, hosts int) time.Duration { return timeout / time.Duration(hosts+1) }

// validate refuses a standby and an old primary.
func (h *hosts) validate(ctx context.Context, conn *pgconn.PgConn) error {
	here, err := historyOf(ctx, conn)
	if err != nil {
		return err
	}
	if here.timeline == 0 {
		return errNotPrimary
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if here.system == h.newest.system && here.timeline < h.newest.timeline && !h.lenient {
		return fmt.Errorf("%w: it is on timeline %d, another one on %d", errStale, here.timeline, h.newest.timeline)
	}
	return nil
}

// historyOf asks with the simple protocol, which a replication connection
// understands as well. The timeline of a standby is 0.
func historyOf(ctx context.Context, conn *pgconn.PgConn) (history, error) {
	results, err := conn.Exec(ctx, selectHistory).ReadAll()
	if err != nil {
		return history{}, fmt.Errorf("ask for the timeline: %w", err)
	}
	row := results[0].Rows[0]
	timeline, err := strconv.ParseInt(string(row[1]), 10, 32)
	if err != nil {
		return history{}, fmt.Errorf("ask for the timeline: %w", err)
	}
	return history{string(row[0]), int32(timeline)}, nil
}

// See selectServer.
const selectHistory = `
	select (select system_identifier from pg_catalog.pg_control_system()),
	       case when pg_catalog.pg_is_in_recovery() then 0
	            else ('x' || left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::int
	       end`

// survey looks at every host once, so that a process that has just started knows
// of a promotion that the first host in the list does not know of.
func (s *Source) survey(ctx context.Context) {
	if newest, _ := findNewest(ctx, s.direct, s.config.ConnectTimeout); newest.timeline > 0 {
		s.hosts.settle(newest.system, newest.timeline)
	}
}

// Primary chooses the primary among the hosts of a configuration, the one on the
// newest timeline if there are several: an old one that came back after a
// failover is none. It returns the configuration of that host alone, or config
// itself if it has one host only or no primary answers.
func Primary(ctx context.Context, config *pgx.ConnConfig, timeout time.Duration) *pgx.ConnConfig {
	_, found := findNewest(ctx, config, timeout)
	return found
}

// findNewest asks each of several hosts, all together for at most timeout. Who does
// not answer has no say. A single host is not asked.
func findNewest(ctx context.Context, config *pgx.ConnConfig, timeout time.Duration) (newest history, found *pgx.ConnConfig) {
	found = config
	each := apart(config)
	if len(each) < 2 {
		return history{}, config
	}
	for _, host := range each {
		if here := askHost(ctx, host, share(timeout, len(each))); here.timeline > newest.timeline {
			newest, found = here, host
		}
	}
	return newest, found
}

func askHost(ctx context.Context, config *pgx.ConnConfig, timeout time.Duration) history {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := pgconn.ConnectConfig(ctx, &config.Config)
	if err != nil {
		return history{}
	}
	defer func() { _ = conn.Close(ctx) }()
	here, err := historyOf(ctx, conn)
	if err != nil {
		return history{}
	}
	return here
}

// apart returns a configuration for each host. A host may have several ways to
// it, with TLS and without.
func apart(c *pgx.ConnConfig) []*pgx.ConnConfig {
	var each []*pgx.ConnConfig
	byAddress := map[string]*pgx.ConnConfig{}
	ways := append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
	for _, way := range ways {
		address := fmt.Sprintf("%s:%d", way.Host, way.Port)
		if known := byAddress[address]; known != nil {
			known.Fallbacks = append(known.Fallbacks, way)
			continue
		}
		one := c.Copy()
		one.Host, one.Port, one.TLSConfig, one.Fallbacks = way.Host, way.Port, way.TLSConfig, nil
		one.ValidateConnect = nil
		byAddress[address] = one
		each = append(each, one)
	}
	return each
}
