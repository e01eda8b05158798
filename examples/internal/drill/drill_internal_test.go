package drill

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// small is a drill with one of everything.
var small = Drill{
	Name: "small", Invariant: "one message for one row", Tables: `create table things (id text primary key)`,
	Queues: []Queue{{Name: "things-dead"}, {Name: "things", FIFO: true, DeadLetters: "things-dead", MaxRetries: 3}},
	Roles: map[string]Role{"clerk": func(_ context.Context, env func(string) string) error {
		return errors.New("no day for " + env("THING"))
	}},
	Play: func(s *Stage) {
		s.Exec(`insert into things values ('a'); select outbox.enqueue('a', 'things', '{"event_id": "a"}')`)
		s.AwaitAccepted("things", 1)
		began := s.Now()
		s.Exec(`select outbox.claim('clerk', 'a', interval '1 hour')`)
		s.Pass(59 * time.Minute)
		s.Prove("a claim is kept", Is("claims", s.Claims("clerk", "a"), 1))
		s.Pass(time.Minute)
		s.Prove("a claim ends", Is("claims", s.Claims("clerk", ""), 0), Is("time", s.Now().Sub(began), time.Hour))
		s.Publish("things", "b", map[string]string{"event_id": "b"})
		s.AwaitAnswers("queue.publish", "things", emulator.Accepted, 2)

		release := s.Hold("things")
		stop := s.Go("a clerk", func(ctx context.Context) error {
			_, err := s.DB.Exec(s.Context(), `insert into things values ('b')`)
			<-ctx.Done()
			return err
		})
		s.AwaitWaiting(1)
		release()
		s.AwaitCount(2, `select count(*) from things`)
		stop()

		clerk := s.Spawn("clerk", map[string]string{"THING": "b"})
		code, err := clerk.Wait(s.Context())
		s.Must(err)
		said := strings.TrimSpace(clerk.Log().Text())
		s.Prove("a role has its settings", Is("exit code", code, 1), Is("error", said, "clerk: no day for b"))
		s.StopRelay()
	},
}

func TestMain(m *testing.M) {
	Child(small)
	goleak.VerifyTestMain(m)
}

func TestRun_SaysWhatWasProved(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if code := run(t.Context(), small, &out); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"\n  time passes: 59 minutes\nproved: a claim is kept\n        claims: 1\n", "\nholds: small: one message for one row\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
}

func TestRun_StopsAtWhatDoesNotHold(t *testing.T) {
	t.Parallel()
	wrong := small
	after := false
	wrong.Play = func(s *Stage) {
		s.Prove("no thing is there", Is("things", s.Count(`select count(*) from things`), 1))
		after = true
	}
	var out strings.Builder
	if code := run(t.Context(), wrong, &out); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if want := "not proved: no thing is there (things: 0, want 1)"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is missing in:\n%s", want, out.String())
	}
	if after || strings.Contains(out.String(), "holds:") {
		t.Error("the drill went on")
	}
}

func TestAwait_EndsWithTheDrill(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out strings.Builder
	p := &program{out: &out}
	p.play(func() {
		newStage(ctx, p, Drill{}, func(string) {}).Await(func(context.Context) error { return errors.New("for ever") })
	})
	if !p.Failed() || !strings.Contains(out.String(), "for ever") {
		t.Errorf("said %q", out.String())
	}
}

func TestProgram_CleansUpAsATestDoes(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	var order []string
	p := &program{out: &out}
	p.play(func() {
		p.Cleanup(func() { order = append(order, "first") })
		p.Cleanup(func() {
			p.Cleanup(func() { order = append(order, "nested") })
			order = append(order, "second")
			panic("in a cleanup")
		})
		p.Fatalf("enough")
		order = append(order, "after the end")
	})
	if got := strings.Join(order, " "); got != "second nested first" {
		t.Errorf("order is %q", got)
	}
	if text := out.String(); !p.Failed() || !strings.Contains(text, "enough") || !strings.Contains(text, "in a cleanup") {
		t.Errorf("said %q", text)
	}
}

func TestProve_NeedsFacts(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := &program{out: &out}
	p.play(func() { newStage(t.Context(), p, Drill{}, func(string) {}).Prove("anything") })
	if !p.Failed() {
		t.Error("a claim without facts was proved")
	}
}

func TestWrap(t *testing.T) {
	t.Parallel()
	for want, texts := range map[string][]string{
		"a":                 {"a"},
		"aaa, bbb,|ccc":     {"aaa", "bbb", "ccc"},
		"longer than it,|a": {"longer than it", "a"},
	} {
		if got := strings.Join(wrap(texts, 9), "|"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestInWords(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"299 seconds": 299 * time.Second, "1 minute": time.Minute, "90 minutes": 90 * time.Minute,
		"1 day": 24 * time.Hour, "30 days": 30 * 24 * time.Hour, "1.5s": 1500 * time.Millisecond, "0s": 0,
	} {
		if got := inWords(d); got != want {
			t.Errorf("%s is %q, want %q", d, got, want)
		}
	}
}
