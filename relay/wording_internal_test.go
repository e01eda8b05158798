package relay

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outbox-relay/outbox-relay/internal/paused"
	"github.com/outbox-relay/outbox-relay/outbox"
)

// Where a reason stands beside a failure, the class is told once.
func TestPublishError_BesideItsReason(t *testing.T) {
	t.Parallel()
	down := &PublishError{Class: Transient, Status: 503, Code: "UNAVAILABLE"}
	for _, c := range []struct {
		failure *PublishError
		reason  string
		want    string
	}{
		{down, "transient", "status 503: UNAVAILABLE"},
		{down, reasonExhausted, "transient: status 503: UNAVAILABLE"},
		{&PublishError{Class: Transient}, "transient", ""},
		{&PublishError{Class: UnknownOutcome, Err: errors.New("reset")}, "unknown_outcome", "reset"},
	} {
		if got := c.failure.beside(c.reason); got != c.want {
			t.Errorf("%v beside %s is %q, want %q", c.failure, c.reason, got, c.want)
		}
	}
}

func TestGate_TellsItsClassOnce(t *testing.T) {
	t.Parallel()
	g := gate{failure: &PublishError{Class: Transient, Status: 503}}
	g.close(time.Now(), Transient, time.Second)
	if s := g.state(); s.Class != "transient" || s.Text != "status 503" || s.Why() != "transient: status 503" {
		t.Errorf("got %+v, %q", s, s.Why())
	}
	if why := (GateState{Class: "rate_limited"}).Why(); why != "rate_limited" {
		t.Errorf("without a text: %q", why)
	}
}

// An operator reads in the log what he has written into the table.
func TestSettings_AreLoggedByTheirColumns(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 3, 1, 7, 28, 30, 0, time.UTC)
	for _, c := range []struct {
		settings Settings
		want     map[string]any
	}{
		{Settings{}, map[string]any{"paused": false}},
		{
			Settings{
				Paused: true, Pause: paused.Note{At: new(began), By: "oncall", Reason: "ticket 8"}, MaxInFlight: 3, MaxAttempts: 5, RatePerSecond: 0.5, OrderedByQueue: true, HoldOnDeadLetter: true,
				Envelope: &outbox.Envelope{Name: "cloudevents", Source: "/s"},
			},
			map[string]any{
				"paused": true, "paused_at": began, "paused_by": "oncall", "paused_reason": "ticket 8", "ordering": "queue", "max_in_flight": 3, "rate_per_second": 0.5, "max_attempts": 5,
				"on_dead_letter": "hold", "envelope": "cloudevents",
			},
		},
	} {
		core, logs := observer.New(zapcore.InfoLevel)
		zap.New(core).Info("changed", zap.Object("settings", &c.settings))
		if diff := cmp.Diff(c.want, logs.All()[0].ContextMap()["settings"]); diff != "" {
			t.Error(diff)
		}
	}
}
