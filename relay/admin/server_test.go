package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
)

// serve runs a server until the test's end and returns its address.
func serve(t *testing.T, state func() relay.State) string {
	t.Helper()
	return serveLooking(t, state, func(context.Context) (*admin.Look, error) { return nil, errors.New("no database") })
}

// serveLooking is serve for a server that looks at a database.
func serveLooking(t *testing.T, state func() relay.State, look func(context.Context) (*admin.Look, error)) string {
	t.Helper()
	return run(t, admin.New(*defaults(), state, look, zap.NewNop()))
}

// What others have found stands behind what the relay's state says, and makes
// nothing red.
func TestServer_Warn(t *testing.T) {
	t.Parallel()
	s := admin.New(*defaults(), idle, func(context.Context) (*admin.Look, error) { return nil, errors.New("no database") }, zap.NewNop())
	s.Warn(func() []admin.Finding {
		return []admin.Finding{{Code: "slot", Text: "slot ours keeps much", Hint: "see D13"}}
	})
	address := run(t, s)
	for path, want := range map[string]string{
		"/readyz": "ok: active\nwarn slot: slot ours keeps much (see D13)\n",
		"/livez":  "ok: active\n",
	} {
		if status, _, body := request(t, http.MethodGet, address+path, "text/plain"); status != http.StatusOK || body != want {
			t.Errorf("%s: %d %q, want %q", path, status, body, want)
		}
	}
	if _, _, body := request(t, http.MethodGet, address+"/status", "application/json"); !strings.Contains(body, "slot ours keeps much") {
		t.Errorf("/status: %s", body)
	}
}

// run runs a server until the test's end and returns its address.
func run(t *testing.T, s *admin.Server) string {
	t.Helper()
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1) // one result
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return "http://" + s.Addr()
}

func request(t *testing.T, method, url, accept string) (status int, header http.Header, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(text)
}

func TestServer_Probes(t *testing.T) {
	t.Parallel()
	var silent atomic.Bool
	url := serve(t, func() relay.State {
		s := idle()
		if silent.Load() {
			s.Source.LastWord = ago(3600e9)
		}
		return s
	})
	expect := func(path string, status int, body string) {
		t.Helper()
		code, h, got := request(t, http.MethodGet, url+path, "*/*")
		if code != status || got != body {
			t.Errorf("%s is %d %q, want %d %q", path, code, got, status, body)
		}
		if h.Get("Cache-Control") != "no-store" || !strings.HasPrefix(h.Get("Content-Type"), "text/plain") {
			t.Errorf("%s has the header %v", path, h)
		}
	}
	expect("/livez", 200, "ok: active\n")
	expect("/readyz", 200, "ok: active\n")
	silent.Store(true)
	expect("/livez", 200, "ok: active\n")
	expect("/readyz", 503, "fail: active\nfail server_silent: Postgres has not confirmed for 1h0m0s that the slot is ours: nothing is sent\n")

	code, _, body := request(t, http.MethodGet, url+"/readyz", "application/json")
	var v admin.Verdict
	if err := json.Unmarshal([]byte(body), &v); err != nil || code != 503 {
		t.Fatalf("%d %v: %s", code, err, body)
	}
	if v.Version != 1 || v.OK || len(v.Reasons) != 1 || v.Reasons[0].Code != "server_silent" || v.Warnings == nil {
		t.Errorf("the JSON is %s", body)
	}
	if code, _, body := request(t, http.MethodHead, url+"/readyz", ""); code != 503 || body != "" {
		t.Errorf("HEAD is %d %q", code, body)
	}
	for path, want := range map[string]int{"/livez": 405, "/readyz": 405, "/nothing": 404} {
		if code, _, _ := request(t, http.MethodPost, url+path, ""); code != want {
			t.Errorf("POST %s is %d, want %d", path, code, want)
		}
	}
}

func TestServer_AddressInUse(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	cfg.Listen = strings.TrimPrefix(serve(t, idle), "http://")
	err := admin.New(*cfg, idle, nil, zap.NewNop()).Listen(t.Context())
	if err == nil || !strings.Contains(err.Error(), "RELAY_ADMIN_LISTEN is "+cfg.Listen) || !strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v", err)
	}
}
