package cdc

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
)

// examine looks at all that must be right for messages to come: the server, the
// way of the relay's other SQL to it, the table and the publication. conn leads
// straight to the server.
func (s *Source) examine(ctx context.Context, conn *pgx.Conn) (server, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.ConnectTimeout)
	defer cancel()
	server, err := inspectServer(ctx, conn)
	if err != nil {
		return server, err
	}
	if err := server.requireLogical(); err != nil {
		return server, err
	}
	if err := s.examineDatabase(ctx, server); err != nil {
		return server, err
	}
	return server, s.examinePublication(ctx, conn)
}

// examineDatabase makes sure that the relay's other SQL reaches the same
// primary, and sees the messages there.
func (s *Source) examineDatabase(ctx context.Context, expected server) error {
	conn, err := s.connect(ctx, "database", s.database)
	if err != nil {
		return err
	}
	defer hangUp(conn)
	there, err := inspectServer(ctx, conn)
	if err != nil {
		return err
	}
	if !there.sameAs(expected.identity) {
		return fmt.Errorf("%w: SQL to %s, replication to %s", errServersDiffer, there.identity, expected.identity)
	}
	return requireVisible(ctx, conn, s.config.Schema)
}

// doctorSays is the hint where several things may be wrong.
const doctorSays = "outbox-relay doctor prints what mends it"

func (s *Source) examinePublication(ctx context.Context, conn *pgx.Conn) error {
	found, err := inspectPublication(ctx, conn, s.config.Publication, s.config.Schema)
	if err != nil {
		return err
	}
	if err := found.check(s.config.Publication, s.config.Schema); err != nil {
		return err
	}
	doubts := strings.Join(found.doubts(s.config.Publication), "; ")
	if before := s.doubts.Swap(&doubts); doubts != "" && (before == nil || *before != doubts) {
		s.log.Warn("publication or table is not as it should be", zap.String(fieldReason, doubts), zap.String(fieldHint, doctorSays))
	}
	return nil
}

// examineSlot says when the server is about to throw away WAL that the slot
// needs, and when it keeps messages back for a standby.
func (s *Source) examineSlot(ctx context.Context, conn *pgx.Conn) error {
	found, err := s.inspectSlot(ctx, conn)
	if err != nil {
		return err
	}
	if found.walStatus == "unreserved" {
		return unreservedError(s.config.Slot)
	}
	if found.failover {
		return examineGate(ctx, conn)
	}
	return nil
}
