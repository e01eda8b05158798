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
	read := func() relay.State { return state }
	look := func(context.Context) (any, error) {
		if report == nil {
			return nil, errors.New("connect: <refused>")
		}
		return report, nil
	}
	s := admin.New(*defaults(), read, look, zap.NewNop())
	s.AddPage(admin.Desk{
		Examine: healthy,
		State:   read, Counts: func() relay.Counts { return relay.Counts{} },
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
