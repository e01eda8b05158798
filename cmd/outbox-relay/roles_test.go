package main

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// printedRoles are a database and the roles of `grants print`, which have exactly
// what it prints: the owner has migrated, as the documentation says. Whoever is to
// use a role that nobody logs in as gets a login.
type printedRoles struct {
	*rig
	t *testing.T
}

func newPrintedRoles(t *testing.T) printedRoles {
	t.Helper()
	admin := pgtest.New(t).URL("postgres")
	p := printedRoles{rigOn(t, admin), t}
	grants := func(part string) {
		sql(t, admin, expectCode(t, settings{"DATABASE_URL": admin}, exitStopped, []string{"grants", "print", "--part", part}).out)
	}
	grants("roles")
	sql(t, admin, "alter role outbox_owner login", "create role oncall login in role outbox_operator")
	p.can("outbox_owner", "migrate", "up")
	grants("rights")
	return p
}

// as are the settings of a role.
func (p printedRoles) as(role string) settings {
	return p.settings.with("DATABASE_URL", strings.Replace(p.url, "postgres@", role+"@", 1))
}

// can runs a verb as a role, to the end and with success.
func (p printedRoles) can(role string, args ...string) {
	p.t.Helper()
	if got := execute(p.t, p.as(role), args...); got.code != exitStopped || strings.Contains(got.out+got.err, "permission denied") {
		p.t.Errorf("%s, %v: exit code %d\n%s%s", role, args, got.code, got.out, got.err)
	}
}

// cannot runs a verb for which a role has no right.
func (p printedRoles) cannot(role string, args ...string) {
	p.t.Helper()
	if got := execute(p.t, p.as(role), args...); got.code == exitStopped || !strings.Contains(got.err, "permission denied") {
		p.t.Errorf("%s, %v: exit code %d, want a refusal\n%s%s", role, args, got.code, got.out, got.err)
	}
}

// jobs are the verbs that work in the database, with the roles that may use them.
// The first arguments find something to do.
var jobs = []struct {
	roles []string
	args  []string
}{
	{[]string{"outbox_owner"}, []string{"migrate", "status"}},
	{[]string{"outbox_owner"}, []string{"migrate", "up"}},
	{[]string{"outbox_relay"}, []string{"doctor"}},
	{[]string{"outbox_relay"}, []string{"slot", "create"}},
	{[]string{"outbox_relay", "outbox_monitor", "oncall"}, []string{"slot", "show"}},
	{[]string{"outbox_relay"}, []string{"slot", "recreate", "--yes"}},
	{[]string{"outbox_relay"}, []string{"slot", "drop", "--yes"}},
	{[]string{"outbox_relay"}, []string{"adopt"}},
	{[]string{"outbox_relay"}, []string{"adopt", "--yes"}},
	{everybody, []string{"status"}},
	{everybody, []string{"explain", "1"}},
	{everybody, []string{"explain", "k7"}},
	{everybody, []string{"dead-letters", "list"}},
	{everybody, []string{"dead-letters", "show", "1"}},
	{everybody, []string{"deferred", "list"}},
	{everybody, []string{"deferred", "keys"}},
	{everybody, []string{"queues", "list"}},
	{everybody, []string{"queues", "show", "orders"}},
	{deciding, []string{"deferred", "retry-now", "--yes"}},
	{deciding, []string{"deferred", "release", "--yes"}},
	{deciding, []string{"dead-letters", "redrive", "1"}},
	{deciding, []string{"dead-letters", "discard", "2", "--why", "a test"}},
	{deciding, []string{"queues", "pause", "orders"}},
	{deciding, []string{"queues", "pause", "orders", "--why", "a test"}},
	{deciding, []string{"queues", "resume", "orders"}},
	{deciding, []string{"queues", "pause", "new-queue"}},
	{[]string{"oncall", "outbox_owner"}, []string{"queues", "set", "orders", "max_in_flight=5"}},
}

var (
	deciding  = []string{"oncall", "outbox_relay", "outbox_owner"}
	everybody = append([]string{"outbox_monitor"}, deciding...)
)

// elsewhere are the verbs that use no database, or one that they make, and those
// with tests of their own for the roles.
var elsewhere = []string{
	"bench", "demo", "emulator", "grants", "health", "help", "infrai", "queues provision", "migrate print", "version", // no database of ours
	"run",    // TestRun_WithPrintedRoles
	"verify", // below: what it says depends on the messages
}

// OPS-03: every verb works with the rights that are printed for those who are to
// use it, and with no others.
func TestRoles_EveryVerb(t *testing.T) {
	t.Parallel()
	p := newPrintedRoles(t)
	for i := range jobs {
		for _, role := range jobs[i].roles {
			sql(t, p.url, `truncate outbox.messages, outbox.dead_letters, outbox.deferred restart identity`)
			fill(t, p.rig)
			p.can(role, jobs[i].args...)
		}
	}
	for _, role := range everybody {
		if got := execute(t, p.as(role), "verify"); !strings.Contains(got.out, "unaccounted") || strings.Contains(got.err, "permission denied") {
			t.Errorf("%s, verify: exit code %d\n%s%s", role, got.code, got.out, got.err)
		}
	}
	p.cannot("outbox_relay", "queues", "set", "orders", "max_in_flight=5")
	p.cannot("outbox_monitor", "queues", "pause", "orders")
	p.cannot("outbox_monitor", "dead-letters", "redrive", "1")
	p.cannot("oncall", "explain", "1", "--payload")
	p.cannot("oncall", "slot", "create")

	for _, verb := range leaves(newRoot(&program{}), "") {
		named := slices.ContainsFunc(jobs, func(j struct{ roles, args []string }) bool {
			return strings.HasPrefix(strings.Join(j.args, " ")+" ", verb+" ")
		})
		if group, _, _ := strings.Cut(verb, " "); !named && !slices.Contains(elsewhere, verb) && !slices.Contains(elsewhere, group) {
			t.Errorf("%s is tried by nobody", verb)
		}
	}
}

// leaves are the verbs that do something.
func leaves(cmd *cobra.Command, prefix string) (verbs []string) {
	for _, sub := range cmd.Commands() {
		name := strings.TrimSpace(prefix + " " + sub.Name())
		if sub.HasSubCommands() {
			verbs = append(verbs, leaves(sub, name)...)
			continue
		}
		verbs = append(verbs, name)
	}
	return verbs
}

// OPS-03: every button of the page works with the rights that are printed for the
// relay.
func TestRoles_EveryButton(t *testing.T) {
	t.Parallel()
	const token = "a-token-of-the-test-0"
	p := newPrintedRoles(t)
	conn := fill(t, p.rig)
	relay := start(t, p.as("outbox_relay").with("RELAY_ADMIN_TOKEN", token, "RELAY_ADMIN_SHOW_PAYLOADS", "true"), "run")
	address := "http://" + adminOf(t, relay)
	relay.AwaitMessage(t, "session began")
	press := func(path string, form url.Values) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if status, body := askPage(t, r, token); status != http.StatusOK || !strings.Contains(body, `"done": `+confirmed(form)) {
			t.Errorf("%s %v: %d %s", path, form, status, body)
		}
	}
	for _, path := range []string{"/", "/dead-letters", "/dead-letters/1"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if status, body := askPage(t, r, token); status != http.StatusOK || strings.Contains(body, "permission denied") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for _, queue := range []string{"orders", "new-queue"} {
		for _, act := range []string{"pause", "resume"} {
			press("/queues/"+act, url.Values{"queue": {queue}})
			press("/queues/"+act, url.Values{"queue": {queue}, "confirm": {"yes"}, "why": {"a test"}})
		}
	}
	press("/dead-letters/redrive", url.Values{"id": {"1"}})
	press("/dead-letters/redrive", url.Values{"ids": {"1"}, "confirm": {"yes"}})
	press("/dead-letters/discard", url.Values{"reason": {"refused"}})
	press("/dead-letters/discard", url.Values{"ids": {"2,3"}, "why": {"a test"}, "confirm": {"yes"}})
	if n := rows(t, conn, "dead_letters where reason = 'discarded'"); n != 2 {
		t.Errorf("%d dead letters are discarded, want 2", n)
	}
}

// confirmed is whether a form is confirmed, as the answer says it.
func confirmed(form url.Values) string {
	if form.Has("confirm") {
		return "true"
	}
	return "false"
}

// askPage sends a request with the token.
func askPage(t *testing.T, r *http.Request, token string) (status int, body string) {
	t.Helper()
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
