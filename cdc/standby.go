package cdc

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
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
	known := ""
	for {
		found, err := s.inspectSlot(ctx, conn)
		if err != nil {
			return waited, err
		}
		if err := found.requireOurs(s.config.Slot, database); err != nil {
			return waited, err
		}
		if found.holder == "" || found.lost() {
			s.state.Store(int32(Connecting))
			return waited, nil
		}
		if found.holder != known {
			known = found.holder
			s.state.Store(int32(Standby))
			s.setProblem(nil)
			s.logHolder(ctx, conn, known)
		}
		waited = true
		if err := sleep(ctx, s.waitFor(standBy)); err != nil {
			return waited, err
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
	s.log.Info("slot is held by another session, standing by", who.fields()...)
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

func (h holder) fields() []zap.Field {
	return []zap.Field{
		zap.String(fieldHolder, h.pid), zap.String(fieldApplication, h.application),
		zap.String(fieldClient, h.client), zap.String(fieldSince, h.since),
	}
}
