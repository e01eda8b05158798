package admin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
)

// serveOn runs a server with all its paths on this address, and returns its port.
func serveOn(t *testing.T, listen string, hosts ...string) (port string) {
	t.Helper()
	cfg := defaults()
	cfg.Listen, cfg.Hosts = listen, hosts
	s := admin.New(*cfg, idle, func(context.Context) (*admin.Look, error) { return nil, errors.New("no database") }, zap.NewNop())
	s.Handle("GET /metrics", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") }))
	s.AddPage(admin.Desk{
		Examine: healthy,
		State:   idle, Counts: func() relay.Counts { return relay.Counts{} },
		Operate: func(context.Context, func(context.Context, *operate.Operator) error) error {
			return errors.New("no database")
		},
	})
	run(t, s)
	_, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// by asks for a path by a host.
func by(t *testing.T, port, host, path string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+port+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
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

var allPaths = []string{"/", "/live", "/static/page.js", "/dead-letters", "/login", "/status", "/livez", "/readyz", "/metrics"}

// Who comes by an address or by a name of the server gets an answer; a site that
// lets its own name lead here gets none, by whatever spelling.
func TestServer_Hosts(t *testing.T) {
	t.Parallel()
	loopback := serveOn(t, "127.0.0.1:0")
	everywhere := serveOn(t, ":0", "relay.example.com")
	local := serveOn(t, "localhost:0")
	for _, c := range []struct{ port, host string }{
		{loopback, "127.0.0.1:" + loopback},
		{loopback, "localhost:" + loopback},
		{loopback, "LocalHost."},
		{loopback, "[::1]:" + loopback},
		{loopback, "[::1]"},
		{local, "localhost:" + local},
		{everywhere, "10.1.2.3:9464"}, // a pod, as a probe and Prometheus see it
		{everywhere, "[fd00::7]:9464"},
		{everywhere, "Relay.Example.com"},
		{everywhere, "relay.example.com.:443"},
		{everywhere, "localhost:9464"}, // kubectl port-forward
	} {
		for _, path := range allPaths {
			if status, body := by(t, c.port, c.host, path); status != http.StatusOK {
				t.Errorf("%s by %s is %d: %s", path, c.host, status, body)
			}
		}
	}
	for _, c := range []struct {
		port, host string
		probes     int
	}{
		{loopback, "evil.example:" + loopback, http.StatusMisdirectedRequest},
		{loopback, "localhost.evil.example", http.StatusMisdirectedRequest},
		{loopback, "relay.example.com", http.StatusMisdirectedRequest},
		{loopback, "127.0.0.1.evil.example", http.StatusMisdirectedRequest},
		{everywhere, "evil.example:9464", http.StatusOK},
		{everywhere, "outbox-relay.shop.svc:9464", http.StatusOK}, // a service that Prometheus knows by name
	} {
		for _, path := range allPaths {
			want := http.StatusMisdirectedRequest
			if strings.HasPrefix(path, "/live") && path != "/live" || path == "/readyz" || path == "/metrics" {
				want = c.probes
			}
			status, body := by(t, c.port, c.host, path)
			if status != want || status != http.StatusOK && !strings.Contains(body, "RELAY_ADMIN_HOSTS") {
				t.Errorf("%s by %s is %d, want %d: %s", path, c.host, status, want, body)
			}
		}
	}
}

// A program that speaks HTTP/1.0 may send no host, and is no browser.
func TestServer_NoHost(t *testing.T) {
	t.Parallel()
	port := serveOn(t, "127.0.0.1:0")
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /readyz HTTP/1.0\r\n\r\n")
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.0 200") {
		t.Errorf("%v: %s", err, answer)
	}
}
