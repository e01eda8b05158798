package adoption_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// page maps each heading of docs/adoption.md to the SQL below it.
type page map[string][]string

// used is the SQL that the tests of this folder run; there is no other.
var used = map[string]int{
	"From a polling table":         3,
	"Back to the poller":           1,
	"From Debezium's outbox table": 2,
	"With a trigger":               2,
	"With a view":                  1,
	"The first day":                1,
	"Taking it out again":          1,
}

func TestPage_AllItsSQLIsRun(t *testing.T) {
	t.Parallel()
	found := make(map[string]int)
	for heading, blocks := range load(t) {
		found[heading] = len(blocks)
	}
	if diff := cmp.Diff(used, found); diff != "" {
		t.Errorf("SQL by heading (-run +in the page):\n%s", diff)
	}
}

// load reads the page.
func load(t *testing.T) page {
	t.Helper()
	content, err := os.ReadFile("../../docs/adoption.md")
	if err != nil {
		t.Fatal(err)
	}
	p := make(page)
	var heading string
	var block []string
	inside := false
	for line := range strings.Lines(string(content)) {
		text := strings.TrimSpace(line)
		switch {
		case inside && text == "```":
			p[heading] = append(p[heading], strings.Join(block, ""))
			inside, block = false, nil
		case inside:
			block = append(block, line)
		case text == "```sql":
			inside = true
		case strings.HasPrefix(line, "#"):
			heading = strings.TrimLeft(text, "# ")
		}
	}
	return p
}
