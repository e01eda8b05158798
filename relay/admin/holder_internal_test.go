package admin

import (
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/relay"
)

func TestEndSession(t *testing.T) {
	t.Parallel()
	for want, pid := range map[string]int{": select pg_terminate_backend(4711)": 4711, "(active_pid) from pg_replication_slots": 0} {
		if got := endSession(&relay.SourceState{HolderPID: pid}); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}
