package scenario_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
)

const diesAgain = "the relay has died again and again, one request goes out at a time"

// deadly is a queue to which a request with one key is the sender's end.
type deadly struct {
	key   string
	armed atomic.Bool
	hit   chan struct{} // the request is there
}

func (d *deadly) front(next http.Handler, left <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !d.armed.Load() || r.Header.Get("Idempotency-Key") != d.key {
			next.ServeHTTP(w, r)
			return
		}
		for hit := d.hit; ; hit = nil {
			select {
			case hit <- struct{}{}:
			case <-r.Context().Done():
				return
			case <-left:
				return
			}
		}
	})
}

// kills waits until the request is there and kills the relay, or until there is
// a dead letter.
func (d *deadly) kills(t *testing.T, w *scenario.World, p *relaybin.Process) (killed bool) {
	t.Helper()
	pgtest.Eventually(t, scenario.Patience, func() error {
		select {
		case <-d.hit:
			kill(t, p)
			killed = true
			return nil
		default:
		}
		if w.Count(`select count(*) from outbox.dead_letters`) == 0 {
			return errors.New("the relay neither dies nor gives up")
		}
		return nil
	})
	return killed
}

// verbPrints runs a verb of the program and returns what it prints.
func verbPrints(t *testing.T, w *scenario.World, args ...string) string {
	t.Helper()
	p := relaybin.Run(t, w.Env, args...)
	p.AwaitExit(t, 0)
	return p.Stdout()
}

// A message that kills the relay whenever it is sent: two starts as usual, three
// careful ones, and then it is a dead letter. Everything else arrives, the lane
// behind it goes on, and once mended and redriven it arrives with the same key.
func TestCrashLoop_TheCulpritIsSetAside(t *testing.T) {
	t.Parallel()
	for name, slotFirst := range map[string]bool{"shown by the stream": true, "loaded from the table": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := scenario.New(t)
			d := &deadly{key: "killer", hit: make(chan struct{})}
			d.armed.Store(true)
			w.Before(d.front)
			if slotFirst {
				p := process(t, w, nil)
				terminate(t, p)
				p.AwaitExit(t, 0)
			}
			messages := scenario.Batch("m", 120, "a", "b", "c", "")
			w.Insert(messages[:60]...)
			if err := scenario.Write(t.Context(), w.Conn, scenario.Message{Key: d.key, OrderingKey: "a"}); err != nil {
				t.Fatal(err)
			}
			w.Insert(messages[60:]...)
			deaths := 0
			p := process(t, w, nil)
			for ; d.kills(t, w, p); p = process(t, w, nil) {
				if deaths++; deaths > 8 {
					t.Fatal("the relay dies for ever")
				}
			}
			if deaths != 5 {
				t.Errorf("the relay died %d times, want 5", deaths)
			}
			p.AwaitLog(t, diesAgain)
			w.AwaitAccepted()
			w.AwaitMarked()
			if got := w.Count(`select count(*) from outbox.dead_letters join outbox.messages on id = message_id
				where key = 'killer' and reason = 'crashed_relay' and attempts = 3`); got != 1 {
				t.Error("the dead letter does not say what it did")
			}
			list := verbPrints(t, w, "dead-letters", "list")
			if !strings.Contains(list, "1 dead letter") || !strings.Contains(list, "killer") || !strings.Contains(list, "crashed_relay") {
				t.Errorf("dead-letters list says %q", list)
			}

			d.armed.Store(false)
			verbPrints(t, w, "dead-letters", "redrive", "--key", d.key)
			w.Committed(scenario.Message{Key: d.key, OrderingKey: "a"})
			w.Settle()
			noDeadLetters(t, w)
			noneLeft(w, t)
		})
	}
}

// A relay that is killed again and again for other reasons becomes careful, and
// delivers everything all the same. A stop in good order ends that.
func TestCrashLoop_WithoutACulprit(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	for round := range 5 {
		batch := scenario.Batch(fmt.Sprintf("m-%d", round), 40, "a", "b", "c", "")
		w.Insert(batch...)
		p := process(t, w, nil)
		w.AwaitRequest(batch[round*5].Key)
		kill(t, p)
	}
	p := process(t, w, nil)
	if starts := p.AwaitLog(t, diesAgain).Fields["unclean_starts"]; starts != 6.0 {
		t.Errorf("%v starts in a row, want 6", starts)
	}
	w.Insert(scenario.Batch("more", 300, "a", "b", "c", "")...)
	w.Settle()
	noDeadLetters(t, w)
	terminate(t, p)
	p.AwaitExit(t, 0)
	if got := w.Count(`select unclean_starts from outbox.relays`); got != 0 {
		t.Errorf("%d starts count after a stop in good order", got)
	}
}

// A standby that takes over counts one start after a kill. After a stop in good
// order it begins anew: the one that leaves takes its start back before it gives
// the slot away.
func TestCrashLoop_StandbyTakesOver(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	active := process(t, w, nil)
	for _, step := range []struct {
		name string
		end  func(*testing.T, *relaybin.Process)
		want int64
	}{{"stop", terminate, 1}, {"kill", kill, 2}, {"kill", kill, 3}, {"stop", terminate, 1}} {
		standby := relaybin.Run(t, w.Env, "run")
		standby.AwaitLog(t, "slot is held by another session, standing by")
		step.end(t, active)
		standby.AwaitLog(t, "session began")
		if got := w.Count(`select unclean_starts from outbox.relays`); got != step.want {
			t.Errorf("%d starts count after a %s, want %d", got, step.name, step.want)
		}
		active = standby
	}
}
