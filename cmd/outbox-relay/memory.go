package main

import (
	"runtime/debug"
	"slices"
	"strings"

	"github.com/outbox-relay/outbox-relay/config"
)

// baseMemory is what the relay takes beside the messages of its window.
const baseMemory = 32 << 20

// boundMemory lets the garbage collector work harder before memory grows beyond
// what the window needs: after a burst, the heap would otherwise be let grow to
// twice what is in use. It is no hard limit. GOMEMLIMIT takes precedence, see the
// documentation of package runtime.
func (p *program) boundMemory(cfg *config.Config) {
	if slices.ContainsFunc(p.environ, func(entry string) bool { return strings.HasPrefix(entry, "GOMEMLIMIT=") }) {
		return
	}
	debug.SetMemoryLimit(baseMemory + 3*int64(cfg.Relay.WindowBytes))
}
