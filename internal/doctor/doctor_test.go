package doctor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/secret"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

func TestMain(m *testing.M) { pgtest.Main(m, func() error { return goleak.Find() }) }

const apiKey = "ifr_the_right_key"

// newQueue is an emulated queue that knows the queue orders.
func newQueue(t *testing.T) (infrai.Config, *emulator.Server) {
	t.Helper()
	server := emulator.New(emulator.Config{APIKey: apiKey, Queues: []string{"orders"}})
	web := httptest.NewServer(server)
	t.Cleanup(func() { server.Close(); web.Close() })
	return infrai.Config{BaseURL: web.URL, APIKey: secret.New(apiKey)}, server
}

// newConfig is a doctor for the database at url, whose slot is named after the
// database, because slots belong to the whole server.
func newConfig(t *testing.T, url string) doctor.Config {
	t.Helper()
	queue, _ := newQueue(t)
	config := parse(t, url)
	return doctor.Config{
		Schema: "outbox", Slot: "slot_" + config.Database, Publication: "outbox_relay",
		Database: config, Replication: config.Copy(), Queue: queue,
	}
}

func parse(t *testing.T, url string) *pgx.ConnConfig {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// as returns the configuration of a connection as another role.
func as(config *pgx.ConnConfig, role string) *pgx.ConnConfig {
	config = config.Copy()
	config.User = role
	return config
}

// examine runs the doctor.
func examine(t *testing.T, cfg doctor.Config) *doctor.Report {
	t.Helper()
	return doctor.Run(t.Context(), cfg)
}

// result returns one check of a report.
func result(t *testing.T, report *doctor.Report, id string) doctor.Result {
	t.Helper()
	for _, r := range report.Checks {
		if r.ID == id {
			return r
		}
	}
	t.Fatalf("no check %s", id)
	return doctor.Result{}
}

// expect runs the doctor and looks at one check: its status, and texts that it
// must name.
func expect(t *testing.T, cfg doctor.Config, id string, status doctor.Status, texts ...string) doctor.Result {
	t.Helper()
	r := result(t, examine(t, cfg), id)
	if r.Status != status {
		t.Fatalf("%s is %s, want %s: %+v", id, r.Status, status, r)
	}
	for _, text := range texts {
		if all := fmt.Sprintf("%+v", r); !strings.Contains(all, text) {
			t.Errorf("%s does not name %q: %s", id, text, all)
		}
	}
	return r
}

// execute runs statements as superuser.
func execute(t *testing.T, url string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// mend applies the statements that a check printed, as a person with psql and
// the right role would: each for itself.
func mend(t *testing.T, url string, r doctor.Result) {
	t.Helper()
	if r.SQL == "" {
		t.Fatalf("%s prints no SQL: %+v", r.ID, r)
	}
	execute(t, url, strings.Split(strings.TrimSuffix(r.SQL, ";"), ";\n")...)
}

// newRole makes a role for the test and returns its name, which needs quotes.
func newRole(t *testing.T, url, options string) string {
	t.Helper()
	role := `Relay "` + parse(t, url).Database + `"`
	quoted := pgx.Identifier{role}.Sanitize()
	execute(t, url, "create role "+quoted+" login "+options)
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), url)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(context.Background())
		for _, sql := range []string{"drop owned by " + quoted, "drop role " + quoted} {
			if _, err := conn.Exec(context.Background(), sql); err != nil {
				t.Errorf("%s: %v", sql, err)
			}
		}
	})
	return role
}

func TestRun_NamesEveryCheckOnce(t *testing.T) {
	t.Parallel()
	report := examine(t, newConfig(t, pgtest.Database(t)))
	seen := map[string]bool{}
	for _, r := range report.Checks {
		if seen[r.ID] {
			t.Errorf("%s runs twice", r.ID)
		}
		seen[r.ID] = true
		if r.Title == "" || r.Severity == "" || r.Docs == "" || r.Status == "" {
			t.Errorf("incomplete: %+v", r)
		}
		if (r.Status == doctor.Fail || r.Status == doctor.Warn) && (r.Message == "" || r.Remedy == "" || r.Observed == "" || r.Expected == "") {
			t.Errorf("a fault without message, remedy, observed or expected: %+v", r)
		}
	}
	if got := report.Passed + report.Warnings + report.Failed + report.Skipped; got != len(report.Checks) {
		t.Errorf("the counts add up to %d, want %d", got, len(report.Checks))
	}
}

func TestRun_SkipsWhatCannotBeSeen(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, "postgres://nobody@127.0.0.1:1/app?sslmode=disable")
	report := examine(t, cfg)
	for _, r := range report.Checks {
		want := doctor.Skip
		switch r.ID {
		case "D01":
			want = doctor.Fail
		case "D48":
			want = doctor.Pass
		}
		if r.Status != want {
			t.Errorf("%s is %s, want %s", r.ID, r.Status, want)
		}
		if r.Status == doctor.Skip && r.Message == "" {
			t.Errorf("%s is skipped without a reason", r.ID)
		}
	}
}

func TestRun_EveryCheckIsOnThePage(t *testing.T) {
	t.Parallel()
	wantOnThePage(t, examine(t, newConfig(t, noDatabase)).Checks)
}

// wantOnThePage looks for the section of each check in the page, in this order.
func wantOnThePage(t *testing.T, checks []doctor.Result) {
	t.Helper()
	page, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	rest := string(page)
	for _, r := range checks {
		heading := "\n## " + r.ID + "\n\n**" + r.Title + ".**"
		_, after, found := strings.Cut(rest, heading)
		if !found {
			t.Errorf("docs/doctor.md lacks %q, or has it in another order", heading)
			continue
		}
		rest = after
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	report := &doctor.Report{
		Passed: 1, Warnings: 1, Failed: 1, Skipped: 1,
		Checks: []doctor.Result{
			{ID: "D01", Title: "One", Status: doctor.Pass, Observed: "good"},
			{ID: "D02", Title: "Two", Status: doctor.Warn, Observed: "so so", Message: "not nice", Expected: "nice", Remedy: "tidy up"},
			{ID: "D03", Title: "Three", Status: doctor.Fail, Observed: "bad", Message: "broken", Remedy: "repair", SQL: "select 1;\nselect 2;"},
			{ID: "D04", Title: "Four", Status: doctor.Skip, Message: "D03 failed"},
		},
	}
	want := `1 passed, 1 warning, 1 failed, 1 skipped
pass  D01  One                       good
warn  D02  Two                       so so
           not nice
           wanted: nice
           do: tidy up
fail  D03  Three                     bad
           broken
           do: repair
             select 1;
             select 2;
skip  D04  Four                      D03 failed
`
	var got strings.Builder
	if err := report.Print(&got, false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	got.Reset()
	if err := report.Print(&got, true); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(got.String(), "\x1b[31mfail\x1b[0m  D03") {
		t.Errorf("no colour in %q", got.String())
	}
}

// Programs read the JSON: these names are an API.
func TestReport_JSON(t *testing.T) {
	t.Parallel()
	report := &doctor.Report{SchemaVersion: 1, Passed: 1, Checks: []doctor.Result{{ID: "D01", Status: doctor.Pass}}}
	got, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"schema_version":1,"passed":1,"warnings":0,"failed":0,"skipped":0,"checks":[{"id":"D01","title":"","status":"pass",` +
		`"severity":"","observed":"","expected":"","message":"","remedy":"","sql":"","safe":false,"docs":""}]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
