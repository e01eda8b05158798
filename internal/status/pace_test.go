package status_test

import (
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/status"
)

func TestPaceOf(t *testing.T) {
	t.Parallel()
	counted := func(n int64) status.Count { return status.Count{Count: n} }
	old := func(seconds float64) status.Count {
		return status.Count{Count: status.Bound, AtLeast: true, OldestSeconds: &seconds}
	}
	for name, test := range map[string]struct {
		now, before status.Count
		seconds     float64
		want        string
	}{
		"fewer":                       {counted(6000), counted(12_000), 30, "200 fewer a second, none left in about 30.0 s"},
		"few at a time":               {counted(100), counted(104), 30, "0.13 fewer a second, none left in about 12.5 min"},
		"more":                        {counted(6000), counted(3000), 30, "100 more a second"},
		"more from none":              {counted(60), counted(0), 30, "2 more a second"},
		"a few more":                  {counted(6000), counted(5999), 30, ""},
		"the same":                    {counted(6000), counted(6000), 30, ""},
		"none":                        {counted(0), counted(6000), 30, ""},
		"weeks":                       {counted(90_000), counted(90_001), 30, ""},
		"no time between":             {counted(6000), counted(12_000), 0, ""},
		"the oldest becomes younger":  {old(600), old(900), 30, "none left in about 1.0 min"},
		"the oldest becomes older":    {old(630), old(600), 30, ""},
		"too many now":                {old(600), counted(90_000), 30, ""},
		"not too many any more":       {status.Count{Count: 90_000, OldestSeconds: new(300.0)}, old(600), 30, "none left in about 30.0 s"},
		"too many, and nobody is old": {status.Count{Count: status.Bound, AtLeast: true}, old(600), 30, ""},
	} {
		if got := status.PaceOf(test.now, test.before, test.seconds).Text(); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// A relay that has looked a little earlier says nothing of a backlog that is over.
func TestReport_Print_NoPaceOfNothing(t *testing.T) {
	t.Parallel()
	report := fixed()
	report.Deferred.Count = 0
	var text strings.Builder
	if err := report.Print(&text); err != nil || strings.Contains(text.String(), "a second") {
		t.Errorf("%v: %s", err, &text)
	}
}
