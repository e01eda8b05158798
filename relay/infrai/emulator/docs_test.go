package emulator_test

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// The page names every switch with its values, and every field, cut and body of
// a fault.
func TestDocs_AreComplete(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../../docs/emulator.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(content)
	for _, w := range emulator.Switches() {
		row := "| `" + w.Name + "` | " + w.Default + " |"
		if w.Values != nil {
			row = "| `" + w.Name + "` | `" + strings.Join(w.Values, "` `") + "` |"
		}
		if !strings.Contains(page, row) {
			t.Errorf("the page lacks the row %s", row)
		}
	}
	whole, err := json.Marshal(emulator.Fault{
		Route: "x", Key: "x", KeyPrefix: "x", Queue: "x", Skip: 1, Every: 1, Probability: 1, Seed: 1, Count: 1, Store: true,
		Delay: time.Second, Hang: true, Cut: "x", Status: 1, Header: http.Header{"X": {"x"}}, RetryAfter: "x", Body: "x",
		Code: "x", Message: "x", Size: 1, Drip: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(whole, &fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, "id")
	delete(fields, "hits")
	names := []string{
		"close", "reset", "half", "envelope", "html", "empty", "truncated", "broken", "slow", "no_message_id", "refusal", "echo",
		"accepted", "replayed", "deduplicated", "conflicting", "done", "refused", "failed",
	}
	for name := range fields {
		names = append(names, name)
	}
	for _, name := range names {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("the page does not name %s", name)
		}
	}
}
