package operate_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/paused"
)

func (r *rig) set(queue string, args ...string) error {
	r.t.Helper()
	settings, err := operate.ParseSettings(args)
	if err != nil {
		return err
	}
	return r.Set(r.t.Context(), queue, settings)
}

func TestQueues_SetAndList(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.messages(2, "a")
	r.defers("held", 1, 2)
	if err := r.set("mails", "paused=true", "max_in_flight=5"); err != nil {
		t.Fatal(err)
	}
	if err := r.set("mails", "max_attempts=3"); err != nil {
		t.Fatal(err)
	}
	five, three := 5, 3
	got, err := r.Queues(t.Context())
	if len(got) > 0 {
		if at := got[0].At; at == nil || time.Since(*at) > time.Minute {
			t.Errorf("paused at %v", at)
		}
		got[0].At = nil
	}
	want := []operate.Queue{
		{Queue: "mails", Paused: true, Note: paused.Note{By: "postgres"}, Ordering: "key", OnDeadLetter: "continue", Envelope: "none", MaxInFlight: &five, MaxAttempts: &three, Configured: true},
		{Queue: "orders", Ordering: "key", OnDeadLetter: "continue", Envelope: "none", Deferred: operate.Count{Count: 2}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("queues: %v (-want +got):\n%s", err, diff)
	}
	if err := r.set("mails", "paused=false", "max_in_flight=default"); err != nil {
		t.Fatal(err)
	}
	one, err := r.Queue(t.Context(), "mails")
	if diff := cmp.Diff(&operate.Queue{Queue: "mails", Ordering: "key", OnDeadLetter: "continue", Envelope: "none", MaxAttempts: &three, Configured: true}, one); diff != "" || err != nil {
		t.Errorf("queue: %v (-want +got):\n%s", err, diff)
	}
	one, err = r.Queue(t.Context(), "unknown")
	if diff := cmp.Diff(&operate.Queue{Queue: "unknown", Ordering: "key", OnDeadLetter: "continue", Envelope: "none"}, one); diff != "" || err != nil {
		t.Errorf("queue: %v (-want +got):\n%s", err, diff)
	}
}

// An envelope is set at once, and messages have it once a relay has said from
// which one on.
func TestQueues_Envelope(t *testing.T) {
	t.Parallel()
	r := setup(t)
	show := func(step, envelope string, from int64, pending bool) {
		t.Helper()
		got, err := r.Queue(t.Context(), "mails")
		if err != nil {
			t.Fatal(err)
		}
		var number int64
		if got.EnvelopeFrom != nil {
			number = *got.EnvelopeFrom
		}
		if got.Envelope != envelope || number != from || got.EnvelopePending != pending {
			t.Errorf("%s: envelope %q from %d, pending %t, want %q from %d, %t", step, got.Envelope, number, got.EnvelopePending, envelope, from, pending)
		}
	}
	set := func(value string) {
		t.Helper()
		if err := r.set("mails", "envelope="+value); err != nil {
			t.Fatal(err)
		}
	}
	show("before", "none", 0, false)
	set("none")
	show("set to what it is", "none", 0, false)
	set("cloudevents")
	show("set", "cloudevents", 0, true)
	r.exec(`insert into outbox.envelopes (queue, first_message, envelope) values ('mails', 5, 'cloudevents'), ('orders', 9, 'none')`)
	show("seen", "cloudevents", 5, false)
	set("default")
	show("set back", "none", 0, true)
	r.exec(`insert into outbox.envelopes (queue, first_message, envelope) values ('mails', 8, 'none')`)
	show("seen again", "none", 8, false)
	set("cloudevents")
	r.exec(`insert into outbox.envelopes (queue, first_message, envelope) values ('mails', 9, 'cloudevents')`)
	r.exec(`delete from outbox.queues`)
	show("without a row", "none", 0, true)
}

func TestQueues_RefusesWhatIsNotValid(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for _, c := range []struct {
		queue string
		args  []string
		want  string
	}{
		{"orders", nil, "no setting is given"},
		{"orders", []string{"max_in_flight=0"}, "max_in_flight must be at least 1; paused=true stops a queue"},
		{"orders", []string{"max_attempts=-1"}, "max_attempts must be at least 1"},
		{"orders", []string{"max_attempts=many"}, `max_attempts is "many", want a whole number or default`},
		{"orders", []string{"max_attempts=9999999999"}, `max_attempts is "9999999999", want a whole number or default`},
		{"orders", []string{"paused"}, `paused is "", want true or false`},
		{"orders", []string{"paused=true", "paused=false"}, "paused is given twice"},
		{
			"orders",
			[]string{"speed=9", "envelope=xml"},
			"unknown setting \"speed\", want paused, ordering, max_in_flight, rate_per_second, max_attempts, on_dead_letter, envelope\n" +
				`envelope is "xml", want none or cloudevents`,
		},
		{"orders", []string{"ordering=fifo"}, `ordering is "fifo", want key or queue`},
		{"orders", []string{"on_dead_letter="}, `on_dead_letter is "", want continue or hold`},
		{"orders", []string{"rate_per_second=fast"}, `rate_per_second is "fast", want a number or default`},
		{"orders", []string{"rate_per_second=0"}, "rate_per_second must be above 0 and finite; paused=true stops a queue"},
		{"Orders!", []string{"paused=true"}, "the name of a queue has at most 63 characters: a-z, 0-9, _ and -, the first one a letter or digit"},
	} {
		err := r.set(c.queue, c.args...)
		if _, invalid := errors.AsType[*operate.InvalidError](err); !invalid || err.Error() != c.want {
			t.Errorf("%v: error is %v, want %s", c.args, err, c.want)
		}
	}
	if got := r.text(`select count(*)::text from outbox.queues`); got != "0" {
		t.Errorf("%s rows were written", got)
	}
}

// Who pauses a queue, and why, stays with it until it goes on; a pause that lasts
// keeps its beginning.
func TestQueues_PauseAndResume(t *testing.T) {
	t.Parallel()
	r := setup(t)
	told := func() string {
		t.Helper()
		q, err := r.Queue(t.Context(), "mails")
		if err != nil {
			t.Fatal(err)
		}
		return q.Words(func(time.Time) string { return "then" })
	}
	began := func() string { return r.text(`select paused_at::text from outbox.queues`) }
	pauses := func(why operate.Pause, want string) *paused.Note {
		t.Helper()
		was, err := r.PauseQueue(t.Context(), "mails", why)
		if got := told(); err != nil || got != want {
			t.Errorf("%+v: %v, %q, want %q", why, err, got, want)
		}
		return was
	}
	resumes := func() *paused.Note {
		t.Helper()
		was, err := r.ResumeQueue(t.Context(), "mails")
		if got := told(); err != nil || got != "" {
			t.Errorf("resumed: %v, %q", err, got)
		}
		return was
	}
	if was := resumes(); was != nil || r.text(`select count(*)::text from outbox.queues`) != "0" {
		t.Errorf("a queue that nobody paused was %+v", was)
	}
	if was := pauses(operate.Pause{}, "since then by postgres"); was != nil {
		t.Errorf("was paused: %+v", was)
	}
	first := began()
	pauses(operate.Pause{Through: "on the page"}, "since then by postgres") // says nothing new
	pauses(operate.Pause{Reason: "ticket 8", Through: "on the page"}, "since then by postgres, on the page: ticket 8")
	was := pauses(operate.Pause{}, "since then by postgres, on the page: ticket 8")
	if was == nil || was.Reason != "ticket 8" || was.At == nil || began() != first {
		t.Errorf("was %+v, since %s, want %s", was, began(), first)
	}
	if was := resumes(); was == nil || was.Reason != "ticket 8" || was.By != "postgres, on the page" {
		t.Errorf("ended %+v", was)
	}
	if was := resumes(); was != nil {
		t.Errorf("ended again: %+v", was)
	}
	for _, reason := range []string{"two\nlines", strings.Repeat("x", 201)} {
		_, err := r.PauseQueue(t.Context(), "mails", operate.Pause{Reason: reason})
		if _, invalid := errors.AsType[*operate.InvalidError](err); !invalid || !strings.Contains(err.Error(), "one line of at most 200 characters") {
			t.Errorf("%q: %v", reason, err)
		}
	}
	if _, err := r.PauseQueue(t.Context(), "No queue", operate.Pause{}); err == nil || !strings.Contains(err.Error(), "at most 63 characters") {
		t.Errorf("an impossible name: %v", err)
	}
	if got := told(); got != "" {
		t.Errorf("paused for all that: %s", got)
	}
}
