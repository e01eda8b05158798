package main

import (
	"encoding/json"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/verify"
)

func TestVerify(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	expectCode(t, r.settings, exitStopped, []string{"verify"}, "0 messages, unaccounted 0: each has one outcome", "no relay has run yet")
	fill(t, r)
	expectCode(t, r.settings, exitStopped, []string{"verify", "--ranges"}, "6 messages, unaccounted 0: each has one outcome", "1 that are dead letters", "1-7")
	sql(t, r.url, "insert into outbox.dispatched (message_id, attempts) values (1, 1), (2, 1)")
	expectCode(t, r.settings, exitVerifyFailed, []string{"verify", "--limit", "1"}, "2 other faults",
		"message 1 (two_outcomes: dispatched, dead letter): outbox-relay explain 1", "and 1 more", "hint: ")
	got := expectCode(t, r.settings, exitVerifyFailed, []string{"verify", "--json", "--from", "2", "--to", "4"})
	var report verify.Report
	if err := json.Unmarshal([]byte(got.out), &report); err != nil {
		t.Fatal(err)
	}
	if report.SchemaVersion != 1 || report.OK || report.Messages != 2 || report.Faults[verify.TwoOutcomes] != 1 {
		t.Errorf("the report is %+v", report)
	}
	expectCode(t, r.settings, exitUsage, []string{"verify", "--since", "-1h"}, "negative")
}
