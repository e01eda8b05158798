package infraiadmin_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/infraiadmin"
	"github.com/outbox-relay/outbox-relay/internal/secret"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// asked asks for the numbers of a queue and returns why that failed.
func asked(t *testing.T, c *infraiadmin.Client) *infraiadmin.Error {
	t.Helper()
	stats, err := c.Stats(t.Context(), "orders")
	failure, ok := errors.AsType[*infraiadmin.Error](err)
	if !ok {
		t.Fatalf("stats are %+v, error is %v", stats, err)
	}
	expectNoKey(t, failure.Error()+failure.Hint())
	if failure.Hint() == "" || strings.ContainsAny(failure.Error()+failure.Hint(), "\n\x1b") {
		t.Errorf("error is %q with the hint %q", failure.Error(), failure.Hint())
	}
	return failure
}

// An answer that misbehaves is told by what should happen next.
func TestError_OfFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault  emulator.Fault
		want   infraiadmin.Problem
		person bool
		texts  []string // in the error or its hint
	}{
		"no credit":         {emulator.Fault{Status: 402, Code: "INSUFFICIENT_CREDIT"}, infraiadmin.NoCredit, true, []string{"402 INSUFFICIENT_CREDIT", "top up"}},
		"no credit by code": {emulator.Fault{Status: 400, Code: "INSUFFICIENT_CREDIT"}, infraiadmin.NoCredit, true, []string{"400 INSUFFICIENT_CREDIT"}},
		"forbidden":         {emulator.Fault{Status: 403}, infraiadmin.Forbidden, true, []string{"may not do this", "right"}},
		"key refused":       {emulator.Fault{Status: 401, Body: emulator.BodyHTML}, infraiadmin.KeyRefused, true, []string{"(401", "INFRAI_API_KEY"}},
		"too many":          {emulator.Fault{Status: 429, RetryAfter: "7"}, infraiadmin.TooMany, false, []string{"429", "Retry-After: 7"}},
		"too many, no time": {emulator.Fault{Status: 429}, infraiadmin.TooMany, false, []string{"in a minute"}},
		"broken":            {emulator.Fault{Status: 503, Body: emulator.BodyHTML}, infraiadmin.Broken, false, []string{"503", "wait"}},
		"broken, empty":     {emulator.Fault{Status: 500, Body: emulator.BodyEmpty}, infraiadmin.Broken, false, []string{"(500"}},
		"refused":           {emulator.Fault{Status: 400, Code: "INVALID_ARGUMENT"}, infraiadmin.Refused, false, []string{"400 INVALID_ARGUMENT", "infrai discover"}},
		"refused with 200":  {emulator.Fault{Body: emulator.BodyRefusal}, infraiadmin.Refused, false, []string{"200"}},
		"redirect":          {emulator.Fault{Status: 307, Header: http.Header{"Location": {"http://127.0.0.1:1/"}}}, infraiadmin.Redirected, true, []string{"307", "final address"}},
		"page":              {emulator.Fault{Status: 200, Body: emulator.BodyHTML}, infraiadmin.Unreadable, false, []string{"text/html"}},
		"empty":             {emulator.Fault{Status: 200, Body: emulator.BodyEmpty}, infraiadmin.Unreadable, false, []string{"no JSON envelope"}},
		"half":              {emulator.Fault{Body: emulator.BodyBroken}, infraiadmin.Unreadable, false, []string{"no JSON envelope"}},
		"breaks off":        {emulator.Fault{Body: emulator.BodyTruncated}, infraiadmin.Unreachable, false, []string{"in the middle"}},
		"cut":               {emulator.Fault{Cut: emulator.CutHalf}, infraiadmin.Unreachable, false, []string{"cannot reach"}},
		"no connection":     {emulator.Fault{Cut: emulator.CutReset}, infraiadmin.Unreachable, false, []string{"emulator"}},
		"conflict":          {emulator.Fault{Status: 409, Code: "QUEUE_ALREADY_EXISTS"}, infraiadmin.Conflict, false, []string{"409"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, server := newQueue(t, emulator.Config{Queues: []string{"orders"}})
			c.fault.Route = "queue.stats"
			addFault(t, server, c.fault)
			failure := asked(t, client)
			if failure.Problem != c.want || failure.NeedsPerson() != c.person {
				t.Errorf("problem is %d, needs a person: %t; %v", failure.Problem, failure.NeedsPerson(), failure)
			}
			for _, text := range c.texts {
				if all := failure.Error() + " " + failure.Hint(); !strings.Contains(all, text) {
					t.Errorf("%q lacks %q", all, text)
				}
			}
		})
	}
}

func TestError_NoAnswerInTime(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]emulator.Fault{"hangs": {Hang: true}, "slow body": {Body: emulator.BodySlow}} {
		_, server := newQueue(t, emulator.Config{Queues: []string{"orders"}})
		addFault(t, server, fault)
		web := httptest.NewServer(server)
		t.Cleanup(web.Close)
		t.Cleanup(server.Close)
		cfg := configFor(web.URL)
		cfg.RequestTimeout = 50 * time.Millisecond
		if failure := asked(t, newClient(t, cfg)); failure.Problem != infraiadmin.Silent || !strings.Contains(failure.Error(), "within 50ms") {
			t.Errorf("%s: %v", name, failure)
		}
	}
}

// A stop is no fault of the queue.
func TestClient_Stopped(t *testing.T) {
	t.Parallel()
	c, _ := newQueue(t, emulator.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Stats(ctx, "orders"); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
}

func TestError_NobodyThere(t *testing.T) {
	t.Parallel()
	failure := asked(t, newClient(t, configFor("http://127.0.0.1:1"))) // nobody gets this port
	if failure.Problem != infraiadmin.Unreachable || !strings.Contains(failure.Error(), "refused") || !strings.Contains(failure.Hint(), "outbox-relay emulator") {
		t.Errorf("%v; %s", failure, failure.Hint())
	}
}

func TestError_Certificate(t *testing.T) {
	t.Parallel()
	web := httptest.NewUnstartedServer(http.NotFoundHandler())
	web.Config.ErrorLog = zap.NewStdLog(zap.NewNop()) // it says that the handshake failed
	web.StartTLS()
	t.Cleanup(web.Close)
	failure := asked(t, newClient(t, configFor(web.URL)))
	if failure.Problem != infraiadmin.Untrusted || !failure.NeedsPerson() || !strings.Contains(failure.Error(), "x509") {
		t.Errorf("%v; %s", failure, failure.Hint())
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	failure = asked(t, newClient(t, configFor(strings.Replace(plain.URL, "http:", "https:", 1))))
	if failure.Problem != infraiadmin.Unreachable || !strings.Contains(failure.Error(), "does not speak TLS") {
		t.Errorf("%v", failure)
	}
}

// What a server sends that is no HTTP may repeat the request with its key.
func TestError_NotHTTP(t *testing.T) {
	t.Parallel()
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("you sent " + r.Header.Get("Authorization") + "\r\n\r\n"))
	}))
	if failure := asked(t, c); failure.Problem != infraiadmin.Unreachable {
		t.Errorf("%v", failure)
	}
}

func TestError_LongAnswer(t *testing.T) {
	t.Parallel()
	body := `{"ok":true,"data":{"x":"` + strings.Repeat("x", 5<<20) + `"}}`
	failure := asked(t, serve(t, answering(http.StatusOK, body)))
	if failure.Problem != infraiadmin.Unreadable || !strings.Contains(failure.Error(), "longer than") {
		t.Errorf("%v", failure)
	}
}

// The key stays where it was meant to go.
func TestClient_DoesNotFollow(t *testing.T) {
	t.Parallel()
	var visits atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits.Add(1) }))
	t.Cleanup(other.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		failure := asked(t, serve(t, answering(status, ``, "Location", other.URL)))
		if failure.Problem != infraiadmin.Redirected {
			t.Errorf("%d: %v", status, failure)
		}
	}
	if n := visits.Load(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

// The queue's text is told if that is wanted, and never the key in it.
func TestError_QueueText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		wanted  bool
		message string
		want    bool
	}{
		{false, "no such thing here", false},
		{true, "no such thing here", true},
		{true, "no such thing here: " + apiKey, false},
		{true, "no such thing here " + strings.Repeat("x", 1000), true},
	} {
		web := httptest.NewServer(answering(http.StatusBadRequest, `{"ok":false,"error":{"code":"<odd>","message":"`+c.message+`"}}`))
		t.Cleanup(web.Close)
		cfg := configFor(web.URL)
		cfg.ErrorText = c.wanted
		text := asked(t, newClient(t, cfg)).Error()
		if got := strings.Contains(text, "no such thing here"); got != c.want || len(text) > 400 || strings.Contains(text, "odd") {
			t.Errorf("wanted %t: %q", c.wanted, text)
		}
	}
}

// An answer that is odd in one place is still read in the others.
func TestError_OddEnvelope(t *testing.T) {
	t.Parallel()
	body := `{"ok":false,"data":7,"error":"no","metadata":{"request_id":"req_\u001b1"}}`
	failure := asked(t, serve(t, answering(http.StatusOK, body, "X-Infrai-Request-Id", "req_7")))
	if failure.Problem != infraiadmin.Refused || failure.RequestID != "req_7" {
		t.Errorf("%+v", failure)
	}
}

// A key that is rotated in its file needs no new client.
func TestClient_KeyFile(t *testing.T) {
	t.Parallel()
	_, server := newQueue(t, emulator.Config{Queues: []string{"orders"}})
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	cfg := configFor(web.URL)
	cfg.APIKey, cfg.APIKeyFile = secret.Text{}, filepath.Join(t.TempDir(), "key")
	c := newClient(t, cfg)
	if failure := asked(t, c); failure.Problem != infraiadmin.NoKey || !strings.Contains(failure.Error(), cfg.APIKeyFile) {
		t.Errorf("without a file: %v", failure)
	}
	for _, content := range []string{"", "two words", "line\nline"} {
		write(t, cfg.APIKeyFile, content)
		if failure := asked(t, c); failure.Problem != infraiadmin.NoKey || strings.Contains(failure.Error(), "words") {
			t.Errorf("%q: %v", content, failure)
		}
	}
	write(t, cfg.APIKeyFile, "ifr_of_yesterday\n")
	if failure := asked(t, c); failure.Problem != infraiadmin.KeyRefused || strings.Contains(failure.Error(), "yesterday") {
		t.Errorf("with another key: %v", failure)
	}
	write(t, cfg.APIKeyFile, apiKey+"\n")
	if _, err := c.Stats(t.Context(), "orders"); err != nil {
		t.Error(err)
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
