package cdc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/waits"
)

// awaitSlot examines the server and stands by while another session has the
// slot. After that it examines again: much may have changed meanwhile.
func (s *Source) awaitSlot(ctx context.Context, conn *pgx.Conn) (server, error) {
	for {
		server, err := s.examine(ctx, conn)
		if err != nil {
			return server, err
		}
		waited, err := s.standBy(ctx, conn, server.database)
		if err != nil || !waited {
			return server, err
		}
	}
}

// standBy waits while another session has the slot, and reports whether it had
// to. It looks at the slot by SQL: a try to take it would leave an error in the
// server's log each time.
func (s *Source) standBy(ctx context.Context, conn *pgx.Conn, database string) (waited bool, err error) {
	known, look := "", 0
	for {
		found, err := s.inspectSlot(ctx, conn)
		if err != nil {
			return waited, err
		}
		if err := found.requireOurs(s.config.Slot, database); err != nil {
			return waited, err
		}
		if found.holder == "" || found.lost() {
			if waited { // or it goes on with what it was at, be it held
				s.become(Connecting)
			}
			return waited, nil
		}
		if found.holder != known {
			known = found.holder
			s.become(Standby)
			s.setProblem(nil)
			s.logHolder(ctx, conn, known)
			look = 0
		}
		waited = true
		if look--; look < 0 {
			look = holderLooks
			s.hearHolder(ctx, conn, known)
		}
		if !waits.Sleep(ctx, s.waitFor(standBy)) {
			return waited, ctx.Err()
		}
	}
}

func (s *Source) logHolder(ctx context.Context, conn *pgx.Conn, pid string) {
	ctx, cancel := context.WithTimeout(ctx, s.config.ConnectTimeout)
	defer cancel()
	who, err := inspectHolder(ctx, conn, pid)
	if err != nil {
		s.log.Debug("holder of the slot cannot be named", zap.Error(err))
	}
	s.keeper.Store(&keeper{who: who.String(), pid: pidOf(pid)})
	s.log.Info("slot is held by another session, standing by", who.fields()...)
}

// holderLooks is how many looks at the slot come between two questions about its
// holder.
const holderLooks = 8

// keeper is who has the slot while we stand by.
type keeper struct {
	who   string
	pid   int       // 0 if it is not known
	heard time.Time // when the server heard from it last; zero if that is not known
}

func pidOf(text string) int {
	pid, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return pid
}

// selectHeard asks when a walsender heard from its client, who answers every few
// seconds. Of another role's, a role without pg_read_all_stats sees nothing.
const selectHeard = `
	select extract(epoch from pg_catalog.clock_timestamp() - r.reply_time)::float8
	from pg_catalog.pg_stat_replication r where r.pid = $1`

// hearHolder notes when the server heard from the holder of the slot. Nobody else
// would notice that a holder is gone whose walsender does not notice it.
func (s *Source) hearHolder(ctx context.Context, conn *pgx.Conn, pid string) {
	ctx, cancel := context.WithTimeout(ctx, s.config.ConnectTimeout)
	defer cancel()
	number, err := strconv.Atoi(pid)
	if err != nil {
		return
	}
	var age *float64
	if err := conn.QueryRow(ctx, selectHeard, number).Scan(&age); err != nil || age == nil {
		return
	}
	if k := s.keeper.Load(); k != nil {
		s.keeper.Store(&keeper{who: k.who, pid: k.pid, heard: time.Now().Add(-time.Duration(*age * float64(time.Second)))})
	}
}

// holder is who streams from the slot.
type holder struct {
	pid, application, client, since string
}

// selectHolder names a walsender. Of another role's, a role without
// pg_read_all_stats sees the pid alone.
const selectHolder = `
	select coalesce(r.application_name, ''), coalesce(r.client_addr::text, ''), coalesce(r.backend_start::text, '')
	from pg_catalog.pg_stat_replication r where r.pid = $1`

func inspectHolder(ctx context.Context, conn *pgx.Conn, pid string) (holder, error) {
	h := holder{pid: pid}
	number, err := strconv.Atoi(pid)
	if err != nil {
		return h, fmt.Errorf("pid of the slot's holder: %w", err)
	}
	err = conn.QueryRow(ctx, selectHolder, number).Scan(&h.application, &h.client, &h.since)
	if errors.Is(err, pgx.ErrNoRows) {
		return h, nil // it has just left
	}
	return h, err
}

// String is the holder for people.
func (h holder) String() string {
	if h.application == "" {
		return "pid " + h.pid
	}
	return fmt.Sprintf("pid %s (%s)", h.pid, h.application)
}

func (h holder) fields() []zap.Field {
	return []zap.Field{
		zap.String(fieldHolder, h.pid), zap.String(fieldApplication, h.application),
		zap.String(fieldClient, h.client), zap.String(fieldSince, h.since),
	}
}
