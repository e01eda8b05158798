package scenario_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// The password holds all that a connection string can be broken by; no piece of
// it may be seen either.
const password = `S3cr%zz:@/pw`

var pieces = []string{"S3cr", "zz:@", "@/pw", "key-for-no-eyes", marker}

// tellsNothing fails when a text holds a piece of a secret, or a payload.
func tellsNothing(t *testing.T, what, text string) {
	t.Helper()
	for _, piece := range pieces {
		if strings.Contains(text, piece) {
			t.Errorf("%s holds %q: %s", what, piece, text)
		}
	}
}

// output is all that a program wrote.
func output(p *relaybin.Process) string { return p.Stdout() + p.Log().Text() }

// SEC-01, SEC-05: a relay at work, with a server and a queue that refuse, tells no
// secrets and no payloads in its log at any level, on its page, in its health and
// its metrics, in its process title, or on the server.
func TestSEC01_ARelayAtWorkTellsNoSecrets(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(quick)
	address, err := url.Parse(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword("postgres", password)
	w.Env["DATABASE_URL"], w.Env["INFRAI_API_KEY"] = address.String(), "key-for-no-eyes"
	w.Fault(emulator.Fault{Key: "m-1", Status: http.StatusUnauthorized, Count: 2, Body: emulator.BodyEcho})
	w.Fault(emulator.Fault{Key: "m-2", Status: http.StatusInternalServerError, Count: 2, Body: emulator.BodyEcho})
	w.Fault(emulator.Fault{Key: "refused", Status: http.StatusBadRequest, Body: emulator.BodyEcho})
	p := process(t, w, nil)
	messages := scenario.Batch("m", 10)
	for i := range messages {
		messages[i].Payload = fmt.Sprintf(`{"name":%q}`, marker)
	}
	w.Insert(messages...)
	if err := scenario.Write(t.Context(), w.Conn, scenario.Message{Key: "refused", Payload: messages[0].Payload}); err != nil {
		t.Fatal(err)
	}
	w.Forget("refused")
	w.Settle()
	p.AwaitLog(t, "dead letter")
	h := patientOf(t, p)
	for _, path := range []string{"/", "/livez", "/readyz", "/status", "/metrics"} {
		pgtest.Eventually(t, scenario.Patience, func() error {
			status, body, err := h.ask(t.Context(), path)
			tellsNothing(t, path, body)
			if err != nil || status >= http.StatusInternalServerError || body == "" {
				return fmt.Errorf("%s: %d, %w, %d bytes", path, status, err, len(body))
			}
			return nil
		})
	}
	var seen string
	err = w.Conn.QueryRow(t.Context(), `select string_agg(a::text, ' ') from pg_stat_activity a where datname = current_database()`).Scan(&seen)
	if err != nil {
		t.Fatal(err)
	}
	title, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range [][]string{{"status"}, {"status", "--json"}, {"doctor"}, {"doctor", "--json"}, {"run", "--help"}} {
		asked := relaybin.Run(t, w.Env, verb...)
		<-asked.Done()
		tellsNothing(t, strings.Join(verb, " "), output(asked))
	}
	terminate(t, p)
	p.AwaitExit(t, 0)
	tellsNothing(t, "the log", output(p))
	tellsNothing(t, "the server", seen)
	tellsNothing(t, "the process title", string(title))

	// The same while nobody answers, and with a server that refuses.
	w.Env["DATABASE_URL"] = "postgres://postgres:" + url.QueryEscape(password) + "@127.0.0.1:1/app"
	p = relaybin.Run(t, w.Env, "run")
	line := p.AwaitLog(t, "database does not answer, waiting for it")
	if !strings.Contains(line.Text, "127.0.0.1:1") || !strings.Contains(line.Text, "app") {
		t.Errorf("the line does not say whom it cannot reach: %s", line.Text)
	}
	terminate(t, p)
	p.AwaitExit(t, 0)
	tellsNothing(t, "the log without a server", output(p))

	options := address.Query()
	options.Set("no_such_option", "1")
	address.RawQuery = options.Encode()
	w.Env["DATABASE_URL"] = address.String()
	p = relaybin.Run(t, w.Env, "run")
	<-p.Done()
	if !strings.Contains(output(p), "no_such_option") {
		t.Errorf("no word about the unknown option: %s", output(p))
	}
	tellsNothing(t, "the log with an unknown option", output(p))
}

// SEC-02: nothing of a row gets into a request but its body and its key. What
// would break out of the key is a dead letter without a request.
func TestSEC02_NothingIsInjected(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	for _, key := range []string{"line\nbreak", "return\r\nX-Admin: yes", "two words", "M\u00fcller", "", strings.Repeat("x", 129)} {
		if err := scenario.Write(t.Context(), w.Conn, scenario.Message{Key: key}); err == nil {
			t.Errorf("the key %q was taken", key)
		}
	}
	headers := []string{
		`{"x-a": "1\r\nx-admin: yes"}`, `{"x b": "1", "x:c": "2"}`, `{"emoji": "\ud83d\ude00"}`, `{"long": "` + strings.Repeat("x", 16_000) + `"}`,
		`{"Host": "elsewhere.example", "Content-Length": "3", "Authorization": "Bearer mine", "Idempotency-Key": "mine", "Transfer-Encoding": "chunked"}`,
	}
	for i, text := range headers {
		m := scenario.Message{Key: fmt.Sprintf("headers-%d", i), OrderingKey: "a"}
		w.Exec(`insert into outbox.messages (key, queue, ordering_key, payload, headers) values ($1, 'orders', 'a', $3, $2)`, m.Key, text, fmt.Sprintf(`{"key":%q}`, m.Key))
		w.Committed(m)
	}
	w.Exec(`alter table outbox.messages drop constraint messages_key_valid`)
	bad := []string{"line\nbreak", "return\r\nX-Admin: yes", "two words", "M\u00fcller", strings.Repeat("x", 129)}
	for _, key := range bad {
		w.Exec(`insert into outbox.messages (key, queue, ordering_key, payload) values ($1, 'orders', 'a', '{}')`, key)
	}
	w.Insert(scenario.Batch("m", 10, "a")...)
	w.Start()
	w.Settle()
	pgtest.Eventually(t, scenario.Patience, func() error {
		if n := w.Count(`select count(*) from outbox.dead_letters where reason = 'refused' and attempts = 0`); n != int64(len(bad)) {
			return fmt.Errorf("%d dead letters without a request, want %d", n, len(bad))
		}
		return nil
	})
	want := []string{"Content-Length", "Content-Type", "Idempotency-Key", "User-Agent"} // the journal leaves Authorization out
	for _, e := range w.Published() {
		if got := slices.Sorted(maps.Keys(e.Header)); !slices.Equal(got, want) {
			t.Errorf("%s was sent with the headers %v, want %v", e.Key, got, want)
		}
	}
}

// marker stands in every payload of the next test.
const marker = "PII-123"

// babble is a front that answers what is no HTTP, and repeats the payload in
// every place where Go's errors quote what they read.
type babble struct {
	mu   sync.Mutex
	told map[string]bool
}

var nonsense = []string{
	marker + "\r\n\r\n",
	"HTTP/" + marker + " 200 OK\r\n\r\n",
	"HTTP/1.1 " + marker + " OK\r\n\r\n",
	"HTTP/1.1 200 OK\r\n" + marker + "\r\n\r\n",
	"HTTP/1.1 200 OK\r\n" + marker + ": \x01\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: " + marker + "\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + marker + "\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + marker + "\r\n",
	"HTTP/1.1 302 Found\r\nLocation: http://%%" + marker + "/\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 302 Found\r\nLocation: http://elsewhere.example/" + marker + "?" + marker + "\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 500 " + marker + "\r\nContent-Length: 7\r\n\r\n" + marker,
	"HTTP/1.1 400 " + marker + "\r\nContent-Type: text/html\r\nContent-Length: 7\r\n\r\n" + marker,
}

func (b *babble) front(next http.Handler, _ <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		var n int
		if _, err := fmt.Sscanf(key, "babble-%d", &n); err != nil || n < len(nonsense)-1 && b.again(key) { // the last one is final
			next.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_, _ = io.WriteString(conn, nonsense[n])
			_ = conn.Close()
		}
	})
}

func (b *babble) again(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	told := b.told[key]
	b.told[key] = true
	return told
}

// SEC-05: however a message fails, and whatever the queue repeats of it, its
// payload is in no line of a log and in no stored column.
func TestSEC05_PayloadsAreNeverTold(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(quick).With(map[string]string{
		"INFRAI_REQUEST_TIMEOUT": "300ms", "INFRAI_MAX_BODY_BYTES": "2000", "RELAY_CONFLICT_ATTEMPTS": "2",
	})
	w.Before((&babble{told: map[string]bool{}}).front)
	faults := []emulator.Fault{
		{Count: 2, Body: emulator.BodyEcho, Status: 500},
		{Count: 2, Body: emulator.BodyEcho, Status: 429},
		{Count: 2, Body: emulator.BodyEcho, Status: 401},
		{Count: 2, Body: emulator.BodyEcho, Status: 404},
		{Count: 2, Body: emulator.BodyEcho, Status: 207},
		{Count: 2, Hang: true},
		{Count: 2, Delay: time.Second, Store: true},
		{Count: 2, Cut: emulator.CutReset},
		{Count: 2, Cut: emulator.CutClose},
		{Count: 2, Cut: emulator.CutHalf},
		{Count: 2, Body: emulator.BodyTruncated},
		{Count: 2, Body: emulator.BodyBroken},
		{Count: 2, Body: emulator.BodySlow},
		{Count: 2, Body: emulator.BodyHTML, Status: 502, Message: marker},
	}
	deadly := []emulator.Fault{
		{Body: emulator.BodyEcho, Status: 400},
		{Body: emulator.BodyEcho, Status: 413},
		{Body: emulator.BodyEcho, Status: 422},
		{Body: emulator.BodyEcho, Status: 409},
		{Body: emulator.BodyEcho, Status: 200},
	}
	message := func(key string) scenario.Message {
		return scenario.Message{Key: key, Payload: fmt.Sprintf(`{"name":%q,"key":%q}`, marker, key)}
	}
	for i, f := range faults {
		f.Key = fmt.Sprintf("fault-%d", i)
		w.Fault(f)
		w.Insert(message(f.Key))
	}
	doomed := 0
	doom := func(m scenario.Message) {
		if err := scenario.Write(context.Background(), w.Conn, m); err != nil {
			t.Fatal(err)
		}
		doomed++
	}
	for i, f := range deadly {
		f.Key = fmt.Sprintf("deadly-%d", i)
		w.Fault(f)
		doom(message(f.Key))
	}
	for i := range nonsense {
		if m := message(fmt.Sprintf("babble-%d", i)); i == len(nonsense)-1 {
			doom(m) // a 400, whatever it holds
		} else {
			w.Insert(m)
		}
	}
	large := message("large")
	large.Payload = fmt.Sprintf(`{"name":%q,"filler":%q}`, marker, strings.Repeat("x", 2000))
	doom(large)
	w.Exec(`alter table outbox.messages drop constraint messages_payload_object`)
	doom(scenario.Message{Key: "text", Payload: fmt.Sprintf("%q", marker)})

	r := w.Start()
	w.AwaitAccepted()
	w.AwaitMarked()
	pgtest.Eventually(t, scenario.Patience, func() error {
		if n := w.Count(`select count(*) from outbox.dead_letters`); n != int64(doomed) {
			return fmt.Errorf("%d dead letters, want %d", n, doomed)
		}
		return nil
	})
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	if r.Logs().FilterMessage("publish failed").Len() < len(faults)+len(deadly)+len(nonsense) {
		t.Errorf("only %d failures in the log", r.Logs().FilterMessage("publish failed").Len())
	}
	for _, line := range r.Logs().All() {
		if text := fmt.Sprint(line.Message, line.ContextMap()); strings.Contains(text, marker) {
			t.Errorf("the log holds the payload: %s", text)
		}
	}
	for _, table := range []string{"dispatched", "deferred", "dead_letters", "relays"} {
		if n := w.Count(`select count(*) from outbox.` + table + ` t where t::text like '%` + marker + `%'`); n != 0 {
			t.Errorf("%d rows of %s hold the payload", n, table)
		}
	}
}
