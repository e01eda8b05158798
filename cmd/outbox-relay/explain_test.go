package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/explain"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	fill(t, r)
	for _, c := range []struct {
		args  []string
		texts []string
	}{
		{[]string{"1"}, []string{"message 1 is a dead letter: refused, status 422 (no such [31m field)", "dead-letters redrive 1"}},
		{[]string{"k4"}, []string{"message 4 is deferred: the last of 0 attempts failed", "no relay has run yet"}},
		{[]string{"3"}, []string{"its row was deleted"}},
	} {
		got := expectCode(t, r.settings, exitStopped, append([]string{"explain"}, c.args...), c.texts...)
		if strings.Contains(got.out, "payload\"") || strings.Contains(got.out, "\x1b") {
			t.Errorf("%v writes a payload or control characters:\n%s", c.args, got.out)
		}
	}
	expectCode(t, r.settings, exitStopped, []string{"explain", "k4", "--payload"}, `{"secret": "payload"}`)
	got := expectCode(t, r.settings, exitStopped, []string{"explain", "k4", "--json"})
	var report explain.Report
	if err := json.Unmarshal([]byte(got.out), &report); err != nil || report.SchemaVersion != 1 || report.State != explain.Deferred {
		t.Errorf("the report is %+v, %v", report, err)
	}
}

func TestExplain_Unknown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	expectCode(t, r.settings, exitNoMessage, []string{"explain", "order-17"}, "there is no message with the key", "That can mean:", "more than 7 days ago")
	got := expectCode(t, r.settings, exitNoMessage, []string{"explain", "17", "--json"})
	var report explain.Report
	if err := json.Unmarshal([]byte(got.out), &report); err != nil || report.State != explain.Unknown || len(report.Possibilities) == 0 {
		t.Errorf("the report is %+v, %v", report, err)
	}
	expectCode(t, r.settings, exitUsage, []string{"explain"}, "want one argument, the id or the key of a message, got 0")
}

// What the page for operators says that a role of theirs needs, is enough; payloads
// it does not read.
func TestExplain_Rights(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	fill(t, r)
	role := "poor_" + strings.TrimPrefix(r.settings["RELAY_SLOT"], "slot_")
	sql(t, r.url, "create role "+role+" login", "grant usage on schema outbox to "+role,
		"grant select on outbox.message_status, outbox.deferred, outbox.dead_letters, outbox.schema_version to "+role)
	t.Cleanup(func() { dropRole(t, r.url, role) })
	environment := r.with("DATABASE_URL", strings.Replace(r.url, "postgres@", role+"@", 1))
	expectCode(t, environment, exitNeedsPerson, []string{"explain", "4"}, "permission denied for table relays", "grants print")
	sql(t, r.url, "grant select on outbox.dispatched, outbox.withdrawn, outbox.relays, outbox.queues to "+role)
	expectCode(t, environment, exitStopped, []string{"explain", "4"}, "message 4 is deferred")
	expectCode(t, environment, exitStopped, []string{"verify"}, "unaccounted 0")
	expectCode(t, environment, exitNeedsPerson, []string{"explain", "4", "--payload"}, "permission denied for table messages")
}
