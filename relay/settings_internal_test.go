package relay

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outbox-relay/outbox-relay/internal/paused"
)

// Another reason for a pause is told, and changes nothing else.
func TestRouter_TellsWhoPausedAQueue(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	r := newRig(testConfig())
	r.log = zap.New(core)
	r.queueOf("q")
	for i, reason := range []string{"first", "second"} {
		r.apply(r.now, map[string]Settings{"q": {Paused: true, Pause: paused.Note{By: "oncall", Reason: reason}}})
		if q := r.state(r.now).Queues[0]; !q.Paused || q.By != "oncall" || q.Reason != reason {
			t.Errorf("%d: %+v", i, q)
		}
	}
	lines := logs.FilterMessage("settings of a queue changed").All()
	if len(lines) != 1 || lines[0].ContextMap()["settings"].(map[string]any)["paused_reason"] != "first" {
		t.Errorf("the log says %v", lines)
	}
	r.apply(r.now, nil)
	if q := r.state(r.now).Queues[0]; q.Paused || q.By != "" {
		t.Errorf("resumed: %+v", q)
	}
}
