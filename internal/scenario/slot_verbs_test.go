package scenario_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// slotVerb runs a verb on the world's slot to its end, and returns its exit code
// and what it wrote.
func slotVerb(t *testing.T, w *scenario.World, extra map[string]string, args ...string) (code int, text string) {
	t.Helper()
	env := maps.Clone(w.Env)
	maps.Copy(env, extra)
	p := relaybin.Run(t, env, append([]string{"slot"}, args...)...)
	ctx, cancel := context.WithTimeout(t.Context(), scenario.Patience)
	defer cancel()
	code, err := p.Wait(ctx)
	if err != nil {
		t.Fatalf("slot %v: %v", args, err)
	}
	return code, p.Stdout() + p.Log().Text()
}

// wantVerb runs a verb and looks at its exit code and at what it writes.
func wantVerb(t *testing.T, w *scenario.World, extra map[string]string, want int, args []string, texts ...string) {
	t.Helper()
	code, text := slotVerb(t, w, extra, args...)
	if code != want {
		t.Fatalf("slot %v: exit code is %d, want %d\n%s", args, code, want, text)
	}
	for _, part := range texts {
		if !strings.Contains(text, part) {
			t.Errorf("slot %v does not write %q:\n%s", args, part, text)
		}
	}
}

func slots(w *scenario.World, name string) int64 {
	return w.Count(`select count(*) from pg_replication_slots where slot_name = $1`, name)
}

// awaitFree waits until nobody has the world's slot: the server notices a moment
// later that a relay was killed.
func awaitFree(t *testing.T, w *scenario.World) {
	t.Helper()
	pgtest.Eventually(t, scenario.Patience, func() error {
		if pid := holder(w); pid != 0 {
			return fmt.Errorf("pid %d has the slot", pid)
		}
		return nil
	})
}

// OPS-09: no stop drops the slot, however it comes about: what is written
// meanwhile comes through it.
func TestOPS09_TheSlotOutlivesEveryStop(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	slot := w.Env["RELAY_SLOT"]
	p := process(t, w, nil)
	for stop, how := range map[string]func(){
		"on-request": func() {
			terminate(t, p)
			p.AwaitExit(t, 0)
		},
		"killed": func() { kill(t, p) },
		"failed-start": func() {
			terminate(t, p)
			p.AwaitExit(t, 0)
			failed := relaybin.Run(t, with(w.Env, "RELAY_PUBLICATION", "no_such_publication"), "run")
			failed.AwaitExit(t, 14)
		},
	} {
		how()
		if slots(w, slot) != 1 {
			t.Fatalf("%s: the slot is gone", stop)
		}
		w.Insert(scenario.Batch(stop, 3, "a")...)
		p = process(t, w, nil)
		if line := p.AwaitLog(t, "slot acquired"); line.Fields["created"] != false {
			t.Errorf("%s: the next relay made a slot: %s", stop, line.Text)
		}
		w.AwaitAccepted()
	}
	w.Settle()
}

func with(env map[string]string, name, value string) map[string]string {
	env = maps.Clone(env)
	env[name] = value
	return env
}

// OPS-09: a slot of an earlier name is pointed out at the start, with what it
// keeps and how to drop it; the removal drops slot and publication and says so.
// What was not sent then is in the table, and a relay that comes back sends it.
func TestOPS09_RenamedAndRemoved(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	old, renamed := w.Env["RELAY_SLOT"], w.Env["RELAY_SLOT"]+"_2"
	w.Insert(scenario.Batch("old", 5, "a", "b")...)
	p := process(t, w, nil)
	w.AwaitMarked()
	terminate(t, p)
	p.AwaitExit(t, 0)

	w.Env["RELAY_SLOT"] = renamed
	p = process(t, w, nil)
	line := p.AwaitLog(t, "slot that no relay uses any more keeps WAL")
	if line.Fields["unused_slot"] != old || line.Fields["retained"] == "" || line.Fields["sql"] != fmt.Sprintf("select pg_drop_replication_slot('%s')", old) {
		t.Errorf("the line is %s", line.Text)
	}
	earlier := map[string]string{"RELAY_SLOT": old}
	wantVerb(t, w, nil, 0, []string{"show"}, renamed, "is in use by process", old)
	wantVerb(t, w, earlier, 0, []string{"drop"}, "would be dropped", "nothing was changed")
	wantVerb(t, w, earlier, 0, []string{"drop", "--yes"}, fmt.Sprintf("slot %q dropped", old))
	if slots(w, old) != 0 || slots(w, renamed) != 1 {
		t.Error("not the slot of the earlier name was dropped")
	}

	// The removal, with messages that have no outcome yet.
	hang := w.Fault(emulator.Fault{Route: "queue.publish", Hang: true})
	w.Insert(scenario.Batch("left", 5, "a", "b")...)
	w.AwaitRequest("left-0")
	wantVerb(t, w, nil, 11, []string{"drop", "--publication", "--yes"}, "held by pid", "stop the relay")
	kill(t, p)
	awaitFree(t, w)
	wantVerb(t, w, nil, 0, []string{"drop", "--publication"}, "5 messages have no outcome yet", "nothing was changed")
	wantVerb(t, w, nil, 0, []string{"drop", "--publication", "--yes"},
		"they stay in the table", fmt.Sprintf("slot %q dropped", renamed), `publication "outbox_relay" dropped`)
	if slots(w, renamed) != 0 || w.Count(`select count(*) from pg_publication`) != 0 {
		t.Error("something is left")
	}

	// It comes back all the same.
	w.Queue.RemoveFault(hang)
	w.Exec(`create publication outbox_relay for table outbox.messages with (publish = 'insert')`)
	w.Insert(scenario.Batch("after", 5, "a", "b")...)
	process(t, w, nil)
	w.Settle()
}

// A person makes the slot anew at the moment when a relay starts: either the
// relay has it, or nothing that the old slot would have shown is lost.
func TestSlotRecreate_WhileRelaysComeAndGo(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{"RELAY_STANDBY_INTERVAL": "50ms"})
	active := process(t, w, nil)
	remade := 0
	for round := range 5 {
		wantVerb(t, w, nil, 11, []string{"recreate", "--yes"}, "held by pid")
		kill(t, active)
		w.Insert(scenario.Batch(fmt.Sprintf("before-%d", round), 20, "a", "b", "")...)
		active = relaybin.Run(t, w.Env, "run")
		switch code, text := slotVerb(t, w, nil, "recreate", "--yes"); code {
		case 0:
			remade++
		case 11:
		default:
			t.Fatalf("exit code %d:\n%s", code, text)
		}
		w.Insert(scenario.Batch(fmt.Sprintf("after-%d", round), 20, "a", "b", "")...)
		active.AwaitLog(t, "session began")
	}
	// Without a rival it goes through, and the next relay finds the rest.
	w.Insert(scenario.Batch("last", 20, "a", "b", "")...)
	kill(t, active)
	awaitFree(t, w)
	wantVerb(t, w, nil, 0, []string{"recreate", "--yes"}, "dropped and made anew")
	process(t, w, nil)
	w.Settle()
	t.Logf("made anew %d times beside a relay", remade)
}

// A person's process dies between the old slot and the new one. That a slot is to
// come is on record by then, so the next relay makes it and finds the rest, also
// one that leaves losses to a person.
func TestSlotRecreate_DiesInBetween(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{"RELAY_SLOT_LOST": "stop"})
	p := process(t, w, nil)
	terminate(t, p)
	p.AwaitExit(t, 0)
	w.Insert(scenario.Batch("before", 20, "a", "b", "")...)

	writer := w.Connect()
	if _, err := writer.Exec(t.Context(), "begin; select pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	verb := relaybin.Run(t, w.Env, "slot", "recreate", "--yes")
	verb.AwaitLog(t, "slot creation waits for an open transaction")
	kill(t, verb)
	if _, err := writer.Exec(t.Context(), "commit"); err != nil {
		t.Fatal(err)
	}
	w.Insert(scenario.Batch("after", 20, "a", "b", "")...)
	process(t, w, nil)
	w.Settle()
}
