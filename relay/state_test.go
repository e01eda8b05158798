package relay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/vital"
	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
)

// awaitState waits until the relay says what is asked for.
func (b *bundle) awaitState(what string, is func(*relay.State) bool) relay.State {
	b.t.Helper()
	var s relay.State
	pgtest.Eventually(b.t, patience, func() error {
		if s = b.moving.State(); !is(&s) {
			return fmt.Errorf("not %s: %+v", what, s)
		}
		return nil
	})
	return s
}

func (b *bundle) awaitPhase(want relay.Phase) relay.State {
	b.t.Helper()
	return b.awaitState(string(want), func(s *relay.State) bool { return s.Phase == want })
}

func TestRelay_State_FollowsAMessage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	publish := make(chan struct{})
	b.start(publisherFunc(func(ctx context.Context, row *outbox.Row) (relay.Receipt, error) {
		<-publish
		if row.ID == 2 {
			return relay.Receipt{}, &relay.PublishError{Class: relay.Refused, Status: 400}
		}
		return relay.Receipt{}, nil
	}))
	b.awaitPhase(relay.Active)
	b.source.batches <- rows(1, 3)
	s := b.awaitState("in flight", func(s *relay.State) bool { return s.Router.InFlight == 1 && s.Router.OldestRequest != nil })
	if r := s.Router; r.Messages != 3 || r.Oldest == nil || r.MessagesLimit != 100 || r.InFlightLimit != 8 {
		t.Errorf("one of three is in flight: %+v", r)
	}
	if q := s.Router.Queues; len(q) != 1 || q[0].Name != "q" || q[0].InMemory != 3 || q[0].Live != 3 || q[0].Cached != 0 || q[0].InFlight != 1 || q[0].Oldest == nil || q[0].LastReturn != nil {
		t.Errorf("the queue is %+v", q)
	}
	close(publish)
	s = b.awaitState("done", func(s *relay.State) bool { return s.Router.Messages == 0 && s.Totals.Dispatched == 2 })
	if r := s.Router; r.Oldest != nil || r.OldestRequest != nil || r.InFlight != 0 || r.Queues[0].InMemory != 0 || r.Queues[0].Live != 0 || r.Queues[0].LastReturn == nil {
		t.Errorf("nothing is left: %+v", r)
	}
	if n := s.Totals; n.DeadLetters != 1 || n.LastDeadLetter == nil || n.LastOutcome == nil {
		t.Errorf("the totals are %+v", n)
	}
	if s.Epoch != 1 || s.Sessions != 1 || s.Holder != "test" || len(s.Loops) != 7 || len(s.Database) != 4 {
		t.Errorf("the state is %+v", s)
	}
	text, err := json.Marshal(s)
	if err != nil || !strings.Contains(string(text), `"version":1`) || !strings.Contains(string(text), `"phase":"active"`) {
		t.Errorf("%v: %s", err, text)
	}
}

// The phases of a relay, with the reasons for them.
func TestRelay_State_Phases(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.source.busy = make(chan struct{})
	moving := relay.New(b.cfg, b.conn.Config(), newFakeSource(), &accept{}, zap.NewNop())
	if s := moving.State(); s.Phase != relay.Starting || s.Step != "waiting" || s.Reason != "" {
		t.Errorf("before Run it is %s, %s: %s", s.Phase, s.Step, s.Reason)
	}
	moving.Awaits(errors.New("nobody answers"))
	if s := moving.State(); s.Phase != relay.Starting || s.Reason != "nobody answers" {
		t.Errorf("before Run it is %s: %s", s.Phase, s.Reason)
	}

	b.start(&accept{})
	b.awaitPhase(relay.Active)
	b.source.broken <- errors.New("stream broke")
	s := b.awaitState("opening again", func(s *relay.State) bool { return s.Phase == relay.Reconnecting && s.Step == "opening" })
	if s.Reason != "stream broke" || s.Interrupted == nil || s.Interrupted.Text != "stream broke" || len(s.Loops) != 0 {
		t.Errorf("after the stream broke: %+v", s)
	}
	at := time.Now().Add(-time.Minute)
	b.source.condition.Store(&relay.Condition{Doing: vital.Standby, Since: at, Holder: "pid 7"})
	if s := b.moving.State(); s.Phase != relay.Standby || !s.Since.Equal(at) || s.Source.SlotHolder != "pid 7" || s.Reason != "" {
		t.Errorf("in standby: %+v", s)
	}
	held := &relay.ClusterError{Known: "1", Here: "2"}
	b.source.condition.Store(&relay.Condition{Doing: vital.Held, Since: at, Trouble: &vital.Trouble{Err: held, Since: at}})
	if s := b.moving.State(); s.Phase != relay.Holding || !strings.Contains(s.Reason, "another cluster") || !strings.Contains(s.Hint, "adopt") {
		t.Errorf("at another cluster: %+v", s)
	}
	b.source.condition.Store(nil)
	close(b.source.busy)
	b.awaitState("active again", func(s *relay.State) bool { return s.Phase == relay.Active && s.Sessions == 2 })
	if err := b.stopped(); err != nil {
		t.Fatal(err)
	}
	if s := b.moving.State(); s.Phase != relay.Stopping {
		t.Errorf("after the stop it is %s", s.Phase)
	}
}

// OPS-06: only a process that is stuck is not alive. Nothing is mocked but the
// limits: a request that does not end, and a router that lets nobody in.
func TestRelay_State_ShowsWhatIsStuck(t *testing.T) {
	t.Parallel()
	live := func(b *bundle) admin.Verdict {
		s := b.moving.State()
		return admin.Live(&admin.Config{StuckAfter: 1200 * time.Millisecond}, &s)
	}
	awaitStuck := func(t *testing.T, b *bundle, text string) {
		t.Helper()
		pgtest.Eventually(t, patience, func() error {
			if v := live(b); v.OK || !strings.Contains(v.String(), text) {
				return fmt.Errorf("no word of %q: %s", text, v)
			}
			return nil
		})
	}
	t.Run("request", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		stuck := make(chan struct{})
		defer close(stuck)
		b.start(publisherFunc(func(context.Context, *outbox.Row) (relay.Receipt, error) {
			<-stuck
			return relay.Receipt{}, nil
		}))
		b.awaitPhase(relay.Active)
		pgtest.Eventually(t, patience, func() error {
			if v := live(b); !v.OK { // for as long as the machine has no time for it
				return fmt.Errorf("stuck before it began: %s", v)
			}
			return nil
		})
		b.source.batches <- rows(1, 1)
		awaitStuck(t, b, "fail stuck: a request to the queue has been under way")
	})
	t.Run("router", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.start(&accept{})
		b.awaitPhase(relay.Active)
		b.awaitState("looked at", func(s *relay.State) bool { return !s.Router.At.IsZero() })
		release := b.moving.HoldRouter()
		defer release()
		held := time.Now()
		awaitStuck(t, b, "fail stuck: the loop clock has been at one piece of work")
		if s := b.moving.State(); s.Router.At.After(held) {
			t.Errorf("the router was seen %s after nobody was let in", s.Router.At.Sub(held))
		}
	})
}
