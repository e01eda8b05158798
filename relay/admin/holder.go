package admin

import (
	"fmt"

	"github.com/outbox-relay/outbox-relay/relay"
)

// endSession ends the session that has the slot. The relay's own role may.
func endSession(s *relay.SourceState) string {
	const hint = "if that relay hangs or is gone, end its session, as the relay's role or an administrator: select pg_terminate_backend"
	if s.HolderPID == 0 {
		return hint + "(active_pid) from pg_replication_slots where slot_name is the relay's"
	}
	return fmt.Sprintf("%s(%d)", hint, s.HolderPID)
}
