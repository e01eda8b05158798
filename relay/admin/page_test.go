package admin_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
)

// show returns the page of a relay in this state. Without a report the database
// does not answer.
func show(t *testing.T, state relay.State, report *status.Report) string {
	t.Helper()
	if report == nil {
		return showLook(t, state, nil)
	}
	return showLook(t, state, &admin.Look{Report: report})
}

// showLook is show with all that the database says.
func showLook(t *testing.T, state relay.State, found *admin.Look) string {
	t.Helper()
	read := func() relay.State { return state }
	look := func(context.Context) (*admin.Look, error) {
		if found == nil {
			return nil, errors.New("connect: <refused>")
		}
		return found, nil
	}
	s := admin.New(*defaults(), read, look, zap.NewNop())
	s.AddPage(admin.Desk{
		Examine: healthy, Key: func() admin.Key {
			return admin.Key{Service: "https://queue.example/v1", File: "/run/key", Since: now, Trouble: "<no> such file"}
		},
		State: read, Counts: func() relay.Counts { return relay.Counts{} },
		Operate: func(context.Context, func(context.Context, *operate.Operator) error) error {
			return errors.New("no database")
		},
	})
	_, _, page := request(t, "GET", run(t, s)+"/", "text/html")
	return page
}

// The first line has the word, the colour and the sentence of the verdict.
func TestPage_FirstLine(t *testing.T) {
	t.Parallel()
	report := &status.Report{Summary: "active since noon, 3 waiting"}
	standby := idle()
	standby.Phase, standby.Source.SlotHolder = relay.Standby, "another"
	began := idle() // after the look at the database
	began.Since = time.Now().Add(time.Hour)
	reconnecting := idle()
	reconnecting.Phase, reconnecting.Since = relay.Reconnecting, *ago(time.Minute)
	silent := idle()
	silent.Source.LastWord = ago(time.Hour)
	paused := idle()
	paused.Router.Queues[0].Paused = true
	for name, c := range map[string]struct {
		state            relay.State
		report           *status.Report
		level, word, and string
	}{
		"active":       {idle(), report, "good", "Ready", "active since noon, 3 waiting"},
		"just began":   {began, report, "good", "Ready", " UTC</span>"},
		"no database":  {idle(), nil, "good", "Ready", "Postgres cannot be asked: connect: &lt;refused&gt;"},
		"paused":       {paused, report, "warn", "Ready, with warnings", "queue orders is paused"},
		"silent":       {silent, report, "bad", "Not ready", "Postgres has not confirmed for 1h0m0s that the slot is ours"},
		"standby":      {standby, report, "idle", "Standby", "Postgres says: active since noon, 3 waiting"},
		"reconnecting": {reconnecting, nil, "bad", "Not ready", "reconnecting since"},
	} {
		page := show(t, c.state, c.report)
		first := regexp.MustCompile(`(?s)<section id="verdict" class="verdict (\w+)".*?<span class="word">([^<]*)</span>(.*?)</section>`).FindStringSubmatch(page)
		if first == nil || first[1] != c.level || first[2] != c.word || !strings.Contains(first[3], c.and) {
			t.Errorf("%s: got %q, want %s, %s, %s", name, first, c.level, c.word, c.and)
		}
	}
}

// What applications and queues wrote is text, whatever it looks like.
func TestPage_EscapesWhatOthersWrote(t *testing.T) {
	t.Parallel()
	const hostile = `"><script>alert(1)</script>`
	state := idle()
	state.Router.Queues[0].Name = hostile
	state.Router.Queues[0].Gate = relay.GateState{Closed: true, Class: "refused", Text: hostile}
	state.Router.Endpoint = relay.GateState{Closed: true, Class: "refused", Text: hostile, Since: ago(time.Hour)}
	page := show(t, state, &status.Report{
		Summary: hostile, DeferredReasons: []status.Reason{{Reason: hostile, Count: 1, LastError: hostile}},
	})
	if strings.Contains(page, hostile) || strings.Contains(page, "<script>") {
		t.Errorf("the page has markup of others: %s", page)
	}
	if n := strings.Count(page, "alert(1)"); n < 6 {
		t.Errorf("the text is there %d times", n)
	}
}

// The numbers of the slot from which one tells a relay that does not confirm from a
// transaction that nobody ends, and how long there is. Of a dead letter that holds
// its lane nothing is tried before a person has decided.
func TestPage_SlotAndDeferred(t *testing.T) {
	t.Parallel()
	retained, unconfirmed, safe := int64(354<<20), int64(15<<10), int64(158<<20)
	page := show(t, idle(), &status.Report{
		Mover: status.Mover{Slot: &status.Slot{
			Name: "ours", WALStatus: "extended", RetainedBytes: &retained, UnconfirmedBytes: &unconfirmed, SafeBytes: &safe, LimitBytes: new(int64(512 << 20)),
		}},
		DeferredReasons: []status.Reason{{Reason: "dead_letter", Count: 8}, {Reason: "held", Count: 7}},
	})
	for _, want := range []string{
		"<dt>Unconfirmed WAL</dt><dd>15 KiB</dd>", "<dt>WAL until loss</dt><dd>158 MiB</dd>", "354 MiB of 512 MiB",
		`<td data-label="Next attempt">when a person has decided about it</td>`, `<td data-label="Next attempt">with its queue or key</td>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in %s", want, page)
		}
	}
}

// cells are the cells of a queue's row, by their names, without markup.
func cells(t *testing.T, page, queue string) map[string]string {
	t.Helper()
	row := regexp.MustCompile(`(?s)<tr>\s*<th scope="row" data-label="Queue">` + queue + `\b.*?</tr>`).FindString(page)
	if row == "" {
		t.Fatalf("no row of %s: %s", queue, page)
	}
	found := map[string]string{}
	for _, cell := range regexp.MustCompile(`(?s)<t[hd][^>]*data-label="([^"]*)"[^>]*>(.*?)</t[hd]>`).FindAllStringSubmatch(row, -1) {
		text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(cell[2], " ")
		found[cell[1]] = strings.Join(strings.Fields(text), " ")
	}
	return found
}

// The row of a queue says what keeps which of its keys, which settings it has, and
// what the relay does not have of it. What is in memory adds up to the total.
func TestPage_Queues(t *testing.T) {
	t.Parallel()
	state := idle()
	state.Router.Messages, state.Router.MessagesLimit, state.Router.Cached = 12, 8192, 230
	state.Router.Queues = []relay.QueueState{
		{Name: "invoices", InMemory: 235, Live: 5, Cached: 230, HeldLanes: 9},
		{Name: "orders", InMemory: 7, Live: 7},
		{Name: "slow", HeldLanes: 1, Hold: "draining"},
		{Name: "stopped", HeldLanes: 2, Gate: relay.GateState{Closed: true, Class: "transient"}},
	}
	page := showLook(t, state, &admin.Look{
		Report: &status.Report{
			Looked: now,
			Unseen: &status.Unseen{Count: 300, OldestSeconds: new(40.0), Queues: []status.QueueCount{{Queue: "mails", Count: 300}}},
			DeferredReasons: []status.Reason{
				{Reason: "dead_letter", Count: 8, Queues: []status.ReasonQueue{{Queue: "invoices", Count: 8}}},
			},
		},
		Queues: []operate.Queue{
			{Queue: "invoices", Ordering: "queue", OnDeadLetter: "hold", MaxInFlight: new(3), RatePerSecond: new(0.5), Deferred: operate.Count{Count: 238}},
			{Queue: "orders", Ordering: "key", OnDeadLetter: "continue", Envelope: "none"},
		},
	})
	for queue, want := range map[string]map[string]string{
		"invoices": {
			"Queue": "invoices ordering=queue max_in_flight=3 rate_per_second=0.5 on_dead_letter=hold",
			"Gate":  "9 keys held 8 keys behind dead letters, until a person decides 1 key behind a message that failed", "In memory": "5", "Deferred": "238 230 in memory",
		},
		"orders":  {"Queue": "orders", "Gate": "open", "In memory": "7", "Deferred": "0"},
		"mails":   {"Queue": "mails", "Gate": "quiet", "In memory": "0 300 unseen"},
		"stopped": {"Gate": "closed transient"},
		"slow":    {"Gate": "draining the backlog goes out, new messages behind it 1 key behind a message that failed"},
	} {
		got := cells(t, page, queue)
		for name, text := range want {
			if got[name] != text {
				t.Errorf("%s, %s: got %q, want %q", queue, name, got[name], text)
			}
		}
	}
	for _, want := range []string{`href="/dead-letters?queue=invoices"`, "12 of 8192 messages, and 230 deferred ones", "https://queue.example/v1", "of /run/key, in use since <time", "the last key stays: &lt;no&gt; such file", "<b>unseen</b>", "what Postgres says of"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in %s", want, page)
		}
	}
}

// When something is tried next depends on what keeps its queue.
func TestPage_NextAttempt(t *testing.T) {
	t.Parallel()
	page := show(t, idle(), &status.Report{
		PausedQueues: []string{"mails"},
		DeferredReasons: []status.Reason{
			{Reason: "held", Count: 9, Queues: []status.ReasonQueue{{Queue: "mails", Count: 9}}},
			{Reason: "transient", Count: 2, NextSeconds: new(12.0), Queues: []status.ReasonQueue{{Queue: "orders", Count: 2, NextSeconds: new(12.0)}}},
		},
	})
	for _, want := range []string{"when mails is resumed", "in 12.0 s"} {
		if !strings.Contains(page, `<td data-label="Next attempt">`+want+"</td>") {
			t.Errorf("no %q in %s", want, page)
		}
	}
}

// What only the page reads may be missing; the report is there all the same.
func TestPage_WithoutTheRest(t *testing.T) {
	t.Parallel()
	page := showLook(t, idle(), &admin.Look{Report: &status.Report{Summary: "active since noon"}, Trouble: errors.New("permission denied for table envelopes")})
	for _, want := range []string{"active since noon", "Postgres cannot be asked: permission denied for table envelopes", "No message waits in the table."} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in %s", want, page)
		}
	}
}

// A standby that has something to tell stays a standby.
func TestPage_StandbyWithWarnings(t *testing.T) {
	t.Parallel()
	state := idle()
	standby(&state)
	page := show(t, state, &status.Report{Looked: now, DeadLetters: status.Count{Count: 1, OldestSeconds: new(5.0)}})
	if !strings.Contains(page, `<span class="word">Standby, with warnings</span>`) || !strings.Contains(page, "1 dead letter needs a person") {
		t.Errorf("the page is %s", page)
	}
}
