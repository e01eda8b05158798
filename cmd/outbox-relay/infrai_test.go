package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/golden"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// project is an Infrai project, with the settings that lead to it.
type project struct {
	settings
	host  string
	queue *emulator.Server // nil if it is none
}

// projectOf serves a project that a handler plays.
func projectOf(t *testing.T, handler http.Handler) *project {
	t.Helper()
	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)
	address, err := url.Parse(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &project{host: address.Host, settings: settings{"INFRAI_BASE_URL": web.URL, "INFRAI_API_KEY": apiKey}}
}

// newProject serves an emulated project.
func newProject(t *testing.T, queues ...string) *project {
	t.Helper()
	queue := emulator.New(emulator.Config{APIKey: apiKey, Queues: queues})
	p := projectOf(t, queue)
	t.Cleanup(queue.Close)
	p.queue = queue
	return p
}

// writes runs a verb and compares what it writes to stdout with a file. Programs
// read the JSON: a change of its file is a change for them.
func (p *project) writes(t *testing.T, code int, file string, args ...string) result {
	t.Helper()
	r := expectCode(t, p.settings, code, args)
	golden.Compare(t, filepath.Join("testdata", "golden", file), strings.ReplaceAll(r.out, p.host, "queue.test"))
	return r
}

var provisionOrders = []string{"queues", "provision", "orders", "--type", "fifo", "--max-retries", "4", "--retention-days", "7"}

func TestProvision(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	with := func(more ...string) []string { return append(append([]string{}, provisionOrders...), more...) }
	creations := func() (n int) {
		for _, e := range p.queue.Journal().Entries(0, 0) {
			if e.Route == "queue.create" {
				n++
			}
		}
		return n
	}

	p.writes(t, exitStopped, "provision-plan.txt", with()...)
	p.writes(t, exitStopped, "provision-plan.json", with("--json")...)
	if n := creations(); n != 0 {
		t.Fatalf("%d queues were created by showing the plan", n)
	}
	p.writes(t, exitStopped, "provision-done.txt", with("--yes")...)
	p.writes(t, exitStopped, "provision-again.json", with("--yes", "--json")...)
	expectCode(t, p.settings, exitStopped, with(), "there was nothing to create")
	if n := creations(); n != 2 {
		t.Errorf("%d queues were created, want 2", n)
	}

	other := []string{"queues", "provision", "orders", "--visibility-timeout", "60", "--priority", "--no-dead-letter-queue"}
	p.writes(t, exitNeedsPerson, "provision-differs.txt", other...)
	p.writes(t, exitNeedsPerson, "provision-differs.json", append(other, "--yes", "--json")...)
	expectCode(t, p.settings, exitNeedsPerson, append(other, "--yes"), "nothing was created", "there with other settings", "hint:")
}

// What was done before something went wrong is told.
func TestProvision_HalfDone(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	if _, err := p.queue.AddFault(emulator.Fault{Route: "queue.create", Queue: "orders", Status: http.StatusServiceUnavailable}); err != nil {
		t.Fatal(err)
	}
	expectCode(t, p.settings, exitUnexpected, append(provisionOrders, "--yes"), "1 queue was created", "create queue orders", "503", "wait and ask again")
}

func TestProvision_WrongUsage(t *testing.T) {
	t.Parallel()
	p := projectOf(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asks for %s", r.URL) }))
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "want one argument"},
		{[]string{"No Queue"}, `"No Queue" is not the name of a queue`},
		{[]string{"orders", "--type", "lifo"}, `the type is "lifo"`},
		{[]string{"orders", "--dead-letter-queue", "orders"}, "its own dead letter queue"},
		{[]string{"orders", "--dead-letter-queue", ""}, "--no-dead-letter-queue"},
		{[]string{"orders", "--dead-letter-queue", "dead", "--no-dead-letter-queue"}, "--no-dead-letter-queue"},
		{[]string{"orders", "--retention-days", "0"}, "1 to 30 days"},
		{[]string{"orders", "--max-retries", "-1"}, "fewer than 0"},
		{[]string{strings.Repeat("o", 63)}, "up to 63"}, // the name of its dead letter queue is too long
	} {
		r := expectCode(t, p.settings, exitUsage, append([]string{"queues", "provision"}, c.args...), c.want)
		if r.out != "" {
			t.Errorf("%v writes to stdout: %s", c.args, r.out)
		}
	}
	expectCode(t, nil, exitUsage, []string{"queues", "provision", "orders"}, "INFRAI_API_KEY or INFRAI_API_KEY_FILE is needed")
}

func TestInfraiStats(t *testing.T) {
	t.Parallel()
	p := newProject(t, "orders")
	p.writes(t, exitStopped, "queuestats.txt", "infrai", "stats", "orders")
	p.writes(t, exitStopped, "queuestats.json", "infrai", "stats", "orders", "--json")
	expectCode(t, p.settings, exitUnexpected, []string{"infrai", "stats", "invoices"}, "404 QUEUE_NOT_FOUND", "hint: check the name")
	expectCode(t, p.settings, exitUsage, []string{"infrai", "stats", "../list"}, "not the name of a queue")

	odd := projectOf(t, answer(`{"ok":true,"data":{"depth":12000000,"paused":false,"since":null,"state":"\u001b[31mactive"}}`))
	odd.writes(t, exitStopped, "queuestats-odd.txt", "infrai", "stats", "orders")
	odd.writes(t, exitStopped, "queuestats-odd.json", "infrai", "stats", "orders", "--json")
}

// answer answers every request alike.
func answer(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }
}

func TestInfraiDeliveries(t *testing.T) {
	t.Parallel()
	p := projectOf(t, answer(`{"ok":true,"data":{"items":[
		{"id":"d_2","event":"queue.dead_letter","status":"failed","destination_status":503,"timestamp":"2026-01-02T03:04:06Z","attempts":3,
			"payload":{"card":"private"}},
		{"id":"d_1\u001b[31m","status":"delivered"}]}}`))
	p.writes(t, exitStopped, "deliveries.txt", "infrai", "deliveries", "wh_1")
	r := p.writes(t, exitStopped, "deliveries.json", "infrai", "deliveries", "wh_1", "--json")
	if strings.Contains(r.out, "private") {
		t.Error("a payload is shown")
	}
	expectCode(t, projectOf(t, answer(`{"ok":true,"data":{"items":[]}}`)).settings, exitStopped, []string{"infrai", "deliveries", "wh_1"}, "0 deliveries")
	expectCode(t, p.settings, exitUsage, []string{"infrai", "deliveries", "../keys"}, "is not an id")
	local := newProject(t)
	expectCode(t, local.settings, exitUnexpected, []string{"infrai", "deliveries", "wh_1"}, "404 WEBHOOK_NOT_FOUND", "hint:")
	if _, err := local.queue.AddDelivery(emulator.Delivery{ID: "dlv_1", Webhook: "wh_1", Event: "message.dead", Status: "failed", DestinationStatus: 503}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"wh_1", "dlv_1"} {
		expectCode(t, local.settings, exitStopped, []string{"infrai", "deliveries", id}, "1 delivery", "dlv_1", "message.dead", "failed", "503")
	}
}

func TestInfraiDiscover(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	delete(p.settings, "INFRAI_API_KEY") // discovery needs none
	p.writes(t, exitStopped, "discover.txt", "infrai", "discover")
	p.writes(t, exitStopped, "discover.json", "infrai", "discover", "--json")
	p.writes(t, exitStopped, "discover-publish.txt", "infrai", "discover", "queue.publish")
	p.writes(t, exitStopped, "discover-publish.json", "infrai", "discover", "queue.publish", "--json")
	expectCode(t, p.settings, exitStopped, []string{"infrai", "discover", "queue.consume"}, "outbox-relay does not make this call")
	expectCode(t, p.settings, exitUnexpected, []string{"infrai", "discover", "queue.purge"}, "404 CAPABILITY_NOT_FOUND")
	expectCode(t, p.settings, exitUsage, []string{"infrai", "discover", "Queue Publish"}, "is not the name of a capability")
	expectCode(t, p.settings, exitUsage, []string{"infrai", "discover", "queue.get", "queue.list"}, "at most one")
	for _, e := range p.queue.Journal().Entries(0, 0) {
		if e.Header.Get("Authorization") != "" {
			t.Errorf("discovery is sent a key: %v", e.Header)
		}
	}
}

// A description that has moved on is told, and a script sees it.
func TestInfraiDiscover_Doubts(t *testing.T) {
	t.Parallel()
	p := projectOf(t, answer(`{"id":"queue.publish","method":"POST","path":"/v2/publish","params":{"type":"object","required":["queue","body","tenant"],
		"properties":{"queue":{"type":"string"},"body":{"type":"object"},"tenant":{"type":"string"}}},
		"capabilities":[{"id":"queue.publish","method":"PUT","path":"/v1/queue/publish","available":false}]}`))
	p.writes(t, exitUnexpected, "discover-doubts.txt", "infrai", "discover", "queue.publish")
	p.writes(t, exitUnexpected, "discover-doubts.json", "infrai", "discover", "queue.publish", "--json")
	expectCode(t, p.settings, exitUnexpected, []string{"infrai", "discover"}, `queue.publish: method is "PUT", the relay uses POST`,
		"queue.publish: queue.publish is not available", "not in the list, and used by outbox-relay: queue.create")
}

// Each refusal has the exit code of what should happen next, and none the key.
func TestInfrai_Refusals(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct {
		code  int
		texts []string
	}{
		http.StatusUnauthorized:    {exitNeedsPerson, []string{"the API key is refused (401", "INFRAI_API_KEY"}},
		http.StatusPaymentRequired: {exitNeedsPerson, []string{"no credit (402", "top up"}},
		http.StatusForbidden:       {exitNeedsPerson, []string{"may not do this (403"}},
		http.StatusFound:           {exitNeedsPerson, []string{"redirects", "INFRAI_BASE_URL"}},
		http.StatusNotFound:        {exitUnexpected, []string{"404"}},
		http.StatusTooManyRequests: {exitUnexpected, []string{"asks to wait (429", "Retry-After: 30"}},
		http.StatusBadGateway:      {exitUnexpected, []string{"in trouble (502"}},
		http.StatusOK:              {exitUnexpected, []string{"not an answer of the queue", "text/html"}},
	} {
		p := projectOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "30")
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(status)
			_, _ = w.Write([]byte("<p>you sent " + r.Header.Get("Authorization")))
		}))
		for _, args := range [][]string{{"infrai", "stats", "orders"}, {"infrai", "deliveries", "wh_1"}, {"queues", "provision", "orders", "--yes"}} {
			r := expectCode(t, p.settings.with("INFRAI_ERROR_TEXT", "true"), want.code, args, want.texts...)
			if strings.Contains(r.out+r.err, apiKey) {
				t.Errorf("%v: the key is in\n%s%s", args, r.out, r.err)
			}
		}
	}
	expectCode(t, settings{"INFRAI_BASE_URL": "http://127.0.0.1:1", "INFRAI_API_KEY": apiKey}, exitUnexpected, []string{"infrai", "stats", "orders"},
		"cannot reach the queue at 127.0.0.1:1", "outbox-relay emulator")
	expectCode(t, nil, exitUsage, []string{"infrai"}, "infrai needs a verb: deliveries, discover, stats")
}
