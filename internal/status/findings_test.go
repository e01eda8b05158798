package status_test

import (
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/status"
)

// What a relay says against its own health is told, but for what the report tells
// anyway; what keeps messages is in the sentence.
func TestReport_Tell(t *testing.T) {
	t.Parallel()
	r := new(status.Report)
	r.Tell(nil)
	if r.Findings == nil || strings.Contains(r.Summary, "not ready") {
		t.Errorf("without findings: %v, %q", r.Findings, r.Summary)
	}
	r.Tell([]status.Finding{
		{Level: status.Fail, Code: "endpoint", Text: "the endpoint is closed"},
		{Level: status.Fail, Code: "writer", Text: "outcomes cannot be written", Hint: "look who\nhas the lock"},
		{Level: status.Fail, Code: "writer", Text: "and again"},
		{Level: status.Warn, Code: "hot_key", Text: "queue orders: 1 ordering key"},
	})
	if !strings.Contains(r.Summary, "not ready (writer)") {
		t.Errorf("the sentence is %q", r.Summary)
	}
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"fail writer", "outcomes cannot be written (look who has the lock)", "warn hot_key"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "fail endpoint") {
		t.Errorf("what the breakers tell is told twice:\n%s", &out)
	}
}
