package admin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/paused"
	"github.com/outbox-relay/outbox-relay/internal/vital"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
)

// now is the moment of all states.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *time.Time {
	at := now.Add(-d)
	return &at
}

func defaults() *admin.Config {
	return &admin.Config{
		Listen: "127.0.0.1:0", MaxAge: 30 * time.Second, StuckAfter: 2 * time.Minute,
		TrustWindow: 10 * time.Second, HolderPatience: 30 * time.Second, LongestWork: 20 * time.Second,
	}
}

// idle is the state of a relay that has had nothing to do for an hour.
func idle() relay.State {
	s := relay.State{
		At: now, Phase: relay.Active, Since: *ago(time.Hour), Step: "running", StepSince: *ago(time.Hour),
		Source: relay.SourceState{Doing: vital.Streaming, Since: *ago(time.Hour), LastWord: ago(time.Second), Turned: ago(time.Second)},
		Router: relay.RouterState{At: now, Queues: []relay.QueueState{{Name: "orders", LastSuccess: ago(time.Hour), LastReturn: ago(time.Hour)}}},
		Totals: relay.Totals{Dispatched: 10, LastOutcome: ago(time.Hour)},
	}
	for _, name := range []string{"writing", "reading", "loading", "sweeping"} {
		s.Database = append(s.Database, relay.LoopState{Name: name, Turned: ago(time.Hour)})
	}
	for name, connection := range map[string]string{
		"intake": "reading", "writer": "", "clock": "", "loader": "loading", "settings": "loading", "sweep": "sweeping", "retention": "sweeping",
	} {
		s.Loops = append(s.Loops, relay.LoopState{Name: name, Turned: ago(time.Hour), Connection: connection})
	}
	return s
}

func loop(list []relay.LoopState, name string) *relay.LoopState {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	panic("no loop " + name)
}

func trouble(text string, age time.Duration) *relay.Trouble {
	return &relay.Trouble{Text: text, Since: *ago(age)}
}

// standby is the state of a relay that has waited for an hour.
func standby(s *relay.State) {
	s.Phase, s.Step, s.Loops, s.Router = relay.Standby, "opening", nil, relay.RouterState{}
	s.Source = relay.SourceState{Doing: vital.Standby, Since: *ago(time.Hour), SlotHolder: "pid 4711", HolderHeard: ago(4 * time.Second)}
}

func TestReady(t *testing.T) {
	t.Parallel()
	queue := func(change func(*relay.QueueState)) func(*relay.State) {
		return func(s *relay.State) { change(&s.Router.Queues[0]) }
	}
	gate := func(class relay.Class, age time.Duration) relay.GateState {
		return relay.GateState{Closed: true, Class: class.String(), Since: ago(age), Text: class.String() + ": status 999"}
	}
	tests := []struct {
		name   string
		change func(*relay.State)
		want   string // the codes, failures before warnings
	}{
		{"idle for an hour", func(*relay.State) {}, "ok"},
		{"standby for an hour", standby, "ok"},
		{"standby, and the server does not tell of the holder", func(s *relay.State) { standby(s); s.Source.HolderHeard = nil }, "ok"},
		{"standby for a relay that is gone", func(s *relay.State) { standby(s); s.Source.HolderHeard = ago(31 * time.Second) }, "fail holder_silent"},
		{"standby that could not take over", func(s *relay.State) { standby(s); s.Source.Trouble = trouble("no such table", time.Minute) }, "fail source"},
		{"starting", func(s *relay.State) { s.Phase, s.Reason = relay.Starting, "connection refused" }, "fail starting"},
		{"reconnecting", func(s *relay.State) { s.Phase = relay.Reconnecting }, "fail reconnecting"},
		{"another cluster", func(s *relay.State) { s.Phase, s.Reason = relay.Holding, "this is another cluster" }, "fail holding"},
		{"asked to stop", func(s *relay.State) { s.Phase = relay.Stopping }, "fail stopping"},
		{"careful", func(s *relay.State) { s.Phase = relay.Careful }, "ok careful"},

		{"server silent", func(s *relay.State) { s.Source.LastWord = ago(10 * time.Second) }, "fail server_silent"},
		{"stream over, and nobody noticed yet", func(s *relay.State) { s.Source.Doing = vital.Closed }, "fail source"},
		{"publication changed", func(s *relay.State) { s.Source.Trouble = trouble("lacks inserts", time.Second) }, "fail source"},

		{"write failed for a moment", func(s *relay.State) { s.Writer.Trouble = trouble("conn closed", 9*time.Second) }, "ok"},
		{"write fails", func(s *relay.State) { s.Writer.Trouble = trouble("lock timeout", 10*time.Second) }, "fail writer"},
		{"intake failed for a moment", func(s *relay.State) { loop(s.Loops, "intake").Trouble = trouble("conn closed", 9*time.Second) }, "ok"},
		{"intake fails", func(s *relay.State) { loop(s.Loops, "intake").Trouble = trouble("conn closed", 10*time.Second) }, "fail database"},
		{"loader fails", func(s *relay.State) { loop(s.Loops, "loader").Trouble = trouble("lock timeout", 10*time.Second) }, "fail database"},
		{"settings cannot be read", func(s *relay.State) { loop(s.Loops, "settings").Trouble = trouble("lock timeout", 10*time.Second) }, "fail database"},
		{"loading hangs", func(s *relay.State) { loop(s.Database, "loading").Busy = ago(30 * time.Second) }, "fail database"},
		{"sweep takes long", func(s *relay.State) {
			loop(s.Database, "sweeping").Busy = ago(time.Hour)
			loop(s.Loops, "sweep").Busy = ago(time.Hour)
		}, "ok"},
		{"sweep failed once", func(s *relay.State) {
			loop(s.Loops, "sweep").Trouble, loop(s.Loops, "sweep").Turned = trouble("lock timeout", 9*time.Second), ago(9*time.Second)
		}, "ok sweep"},
		{"sweep failed twice", func(s *relay.State) {
			loop(s.Loops, "sweep").Trouble, loop(s.Loops, "sweep").Turned = trouble("lock timeout", 20*time.Second), ago(5*time.Second)
		}, "fail sweep"},
		{"retention not permitted", func(s *relay.State) {
			loop(s.Loops, "retention").Trouble, loop(s.Loops, "retention").Turned = trouble("permission denied", time.Hour), ago(time.Second)
		}, "ok retention"},

		{"endpoint closed for a moment", func(s *relay.State) { s.Router.Endpoint = gate(relay.Transient, 9*time.Second) }, "ok endpoint"},
		{"endpoint down", func(s *relay.State) { s.Router.Endpoint = gate(relay.UnknownOutcome, 10*time.Second) }, "fail endpoint"},
		{"key revoked", func(s *relay.State) { s.Router.Endpoint = gate(relay.EndpointClosed, 0) }, "fail endpoint"},
		{"queue asks for a pause", queue(func(q *relay.QueueState) { q.Gate, q.InMemory = gate(relay.RateLimited, time.Second), 1 }), "ok queue"},
		{"queue gone", queue(func(q *relay.QueueState) { q.Gate, q.InMemory = gate(relay.QueueClosed, 0), 1 }), "fail queue"},
		{"queue gone, messages in the table", queue(func(q *relay.QueueState) { q.Gate, q.Hold = gate(relay.QueueClosed, 0), "held" }), "fail queue"},
		{"queue gone, and not needed", queue(func(q *relay.QueueState) { q.Gate = gate(relay.QueueClosed, time.Hour) }), "ok queue"},

		{"oldest message", queue(func(q *relay.QueueState) { q.Oldest = ago(29 * time.Second) }), "ok"},
		{"oldest message too old", queue(func(q *relay.QueueState) { q.Oldest = ago(30 * time.Second) }), "fail oldest"},
		{"draining", queue(func(q *relay.QueueState) { q.Hold, q.OldestCached, q.LastReturn = "draining", ago(time.Minute), ago(0) }), "ok backlog"},
		{"stalled", queue(func(q *relay.QueueState) {
			q.Hold, q.OldestCached, q.LastReturn = "draining", ago(30*time.Second), ago(time.Minute)
		}), "fail stalled backlog"},
		{"in the table for no reason", queue(func(q *relay.QueueState) {
			q.Hold, q.Waits, q.LastReturn = "held", ago(30*time.Second), ago(time.Minute)
		}), "fail stalled backlog"},
		{"in the table since a moment", queue(func(q *relay.QueueState) { q.Hold, q.Waits, q.LastReturn = "held", ago(time.Second), ago(time.Hour) }), "ok backlog"},
		{"slow by a rate", queue(func(q *relay.QueueState) {
			q.OldestCached, q.LastReturn, q.RatePerSecond = ago(time.Minute), ago(40*time.Second), 0.05
		}), "ok"},
		{"paused", queue(func(q *relay.QueueState) { q.Paused, q.Hold, q.OldestCached = true, "held", ago(time.Hour) }), "ok paused"},
		{"row filter", func(s *relay.State) { s.Source.Doubts = "a row filter" }, "ok publication"},
		{"key revoked, messages in the table", func(s *relay.State) {
			s.Router.Endpoint = gate(relay.EndpointClosed, 0)
			s.Router.Queues = []relay.QueueState{{Name: "orders", Hold: "held", HeldLanes: 2}}
		}, "fail endpoint"},
		{"more than a rate lets go", queue(func(q *relay.QueueState) { q.RatePerSecond, q.InMemory = 14, 200 }), "ok backlog"},
		{"no more than a rate lets go", queue(func(q *relay.QueueState) { q.RatePerSecond, q.InMemory = 14, 100 }), "ok"},
		{"a hot key", queue(func(q *relay.QueueState) { q.DrainingLanes, q.DrainingSince = 1, ago(10*time.Second) }), "ok hot_key"},
		{"a crowd of a moment", queue(func(q *relay.QueueState) { q.DrainingLanes, q.DrainingSince = 1, ago(9*time.Second) }), "ok"},
		{"lanes drain beside their queue", queue(func(q *relay.QueueState) {
			q.Hold, q.DrainingLanes, q.DrainingSince = "draining", 1, ago(time.Minute)
		}), "ok backlog"},
		{"one lane of many", queue(func(q *relay.QueueState) { q.HeldLanes = 1 }), "ok held"},

		{"router mute", func(s *relay.State) { s.Router.At = *ago(10 * time.Second) }, "fail router"},
		{"stuck", func(s *relay.State) { loop(s.Loops, "clock").Busy = ago(2 * time.Minute) }, "fail stuck"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			state := idle()
			test.change(&state)
			if got := codes(admin.Ready(defaults(), &state, nil)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// A backlog says what it waits for, as far as that is a setting.
func TestReady_WhatABacklogWaitsFor(t *testing.T) {
	t.Parallel()
	for want, q := range map[string]relay.QueueState{
		"queue orders: messages wait in the table, new ones behind them (draining), and rate_per_second lets 14 a second go": {RatePerSecond: 14, Hold: "draining"},
		"queue orders: messages wait, and rate_per_second lets 14 a second go":                                               {RatePerSecond: 14, InMemory: 500},
		"queue orders: messages wait in the table, new ones behind them (held), and as many requests are in flight as may be, 8": {
			Hold: "held", InFlight: 8, InFlightLimit: 8,
		},
		"queue orders: messages wait in the table, new ones behind them (draining)": {Hold: "draining", InFlight: 3, InFlightLimit: 8},
	} {
		state := idle()
		q.Name = "orders"
		state.Router.Queues = []relay.QueueState{q}
		if got := admin.Ready(defaults(), &state, nil).Warnings; len(got) != 1 || got[0].Code != "backlog" || got[0].Text != want {
			t.Errorf("got %+v, want %q", got, want)
		}
	}
}

// codes is a verdict in short.
func codes(v admin.Verdict) string {
	words := []string{"fail"}
	if v.OK {
		words[0] = "ok"
	}
	for _, f := range append(v.Reasons, v.Warnings...) {
		words = append(words, f.Code)
	}
	return strings.Join(words, " ")
}

func TestLive(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*relay.State)
		want   string
	}{
		{"idle for an hour", func(*relay.State) {}, "ok"},
		{"standby", standby, "ok"},
		{"Postgres has been down for an hour", func(s *relay.State) {
			s.Phase, s.Step, s.Loops = relay.Reconnecting, "opening", nil
			s.Source = relay.SourceState{Doing: vital.Connecting, Since: *ago(time.Hour), Trouble: trouble("connection refused", time.Hour)}
		}, "ok"},
		{"queue has been down for an hour", func(s *relay.State) {
			s.Router.Endpoint = relay.GateState{Closed: true, Class: "transient", Since: ago(time.Hour)}
		}, "ok"},
		{"a statement takes an hour", func(s *relay.State) {
			loop(s.Loops, "sweep").Busy, loop(s.Database, "sweeping").Busy = ago(time.Hour), ago(time.Hour)
		}, "ok"},
		{"between two tries of a statement", func(s *relay.State) {
			loop(s.Loops, "loader").Busy, loop(s.Database, "loading").Trouble = ago(time.Hour), trouble("conn closed", time.Hour)
		}, "ok"},
		{"clock nearly stuck", func(s *relay.State) { loop(s.Loops, "clock").Busy = ago(2*time.Minute - time.Second) }, "ok"},
		{"clock stuck", func(s *relay.State) { loop(s.Loops, "clock").Busy = ago(2 * time.Minute) }, "fail stuck"},
		{"loader stuck, its connection idle", func(s *relay.State) { loop(s.Loops, "loader").Busy = ago(2 * time.Minute) }, "fail stuck"},
		{"writer stuck, whatever Postgres does", func(s *relay.State) {
			loop(s.Loops, "writer").Busy, loop(s.Database, "writing").Busy = ago(2*time.Minute), ago(2*time.Minute)
		}, "fail stuck"},
		{"request stuck", func(s *relay.State) { s.Router.OldestRequest = ago(2 * time.Minute) }, "fail stuck"},
		{"stream stuck", func(s *relay.State) { s.Source.Turned = ago(2 * time.Minute) }, "fail stuck"},
		{"session does not end", func(s *relay.State) { s.Step, s.StepSince = relay.StepEnding, *ago(2 * time.Minute) }, "fail stuck"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			state := idle()
			test.change(&state)
			if got := codes(admin.Live(defaults(), &state)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// Settings that let a request take long let it be under way for long.
func TestLive_FollowsTheOtherTimeouts(t *testing.T) {
	t.Parallel()
	cfg, state := defaults(), idle()
	state.Router.OldestRequest = ago(9 * time.Minute)
	cfg.LongestWork = 5 * time.Minute
	if v := admin.Live(cfg, &state); !v.OK {
		t.Errorf("a request within its time is taken for stuck: %s", v)
	}
}

// Who stopped a queue, when and why, is what one asks first.
func TestReady_TellsWhoPausedAQueue(t *testing.T) {
	t.Parallel()
	state, since := idle(), ago(time.Minute)
	q := &state.Router.Queues[0]
	q.Paused, q.Note = true, paused.Note{At: since, By: "oncall", Reason: "ticket 8:\nasleep"}
	warnings := admin.Ready(defaults(), &state, nil).Warnings
	if len(warnings) != 1 || warnings[0].Code != "paused" || warnings[0].Since == nil || !warnings[0].Since.Equal(*since) {
		t.Fatalf("got %+v", warnings)
	}
	for _, want := range []string{"queue " + q.Name + " is paused since ", " UTC by oncall: ticket 8: asleep; its messages wait"} {
		if got := warnings[0].Text; !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
}

// The answer for people is one line for each finding, whatever an error says, and
// never very long.
func TestVerdict_Text(t *testing.T) {
	t.Parallel()
	state := idle()
	state.Source.Trouble = &relay.Trouble{Text: "first\nsecond", Hint: "do\nthat", Since: *ago(time.Minute)}
	state.Router.Queues = nil
	for i := range 50 {
		state.Router.Queues = append(state.Router.Queues, relay.QueueState{Name: fmt.Sprintf("q%02d", i), Paused: true})
	}
	lines := strings.Split(strings.TrimSpace(admin.Ready(defaults(), &state, nil).String()), "\n")
	if lines[0] != "fail: active" || lines[1] != "fail source: first second (do that)" {
		t.Errorf("the first lines are %q", lines[:2])
	}
	if lines[2] != "warn paused: queue q00 is paused by somebody, and nobody noted whom; its messages wait (outbox-relay queues resume q00)" {
		t.Errorf("the third line is %q", lines[2])
	}
	if n := len(lines); n != 23 || lines[22] != "warn more: and 30 more" {
		t.Errorf("%d lines, the last one is %q", n, lines[n-1])
	}
}
