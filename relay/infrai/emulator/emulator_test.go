package emulator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is an emulator behind a real web server, and a client of it.
type rig struct {
	*emulator.Server
	t      *testing.T
	web    *httptest.Server
	client *http.Client
}

func start(t *testing.T, cfg emulator.Config) *rig {
	t.Helper()
	return serve(t, emulator.New(cfg))
}

func serve(t *testing.T, s *emulator.Server) *rig {
	t.Helper()
	web := httptest.NewServer(s)
	t.Cleanup(func() {
		s.Close()
		web.Close()
	})
	return &rig{Server: s, t: t, web: web, client: web.Client()}
}

// script adds a fault.
func (r *rig) script(f emulator.Fault) {
	r.t.Helper()
	if _, err := r.AddFault(f); err != nil {
		r.t.Fatal(err)
	}
}

// wait waits until the journal has so many entries.
func (r *rig) wait(entries uint64) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	if err := r.Journal().Wait(ctx, entries-1); err != nil {
		r.t.Fatalf("wait for entry %d: %v", entries, err)
	}
}

// reply is an answer with its envelope opened.
type reply struct {
	Status int
	Header http.Header
	Raw    []byte

	OK    bool            `json:"ok"`
	Data  json.RawMessage `json:"data"`
	Error *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	Metadata struct {
		RequestID string `json:"request_id"`
	} `json:"metadata"`
}

type item struct {
	MessageID    string          `json:"message_id"`
	Payload      json.RawMessage `json:"payload"`
	ReceiveCount int             `json:"receive_count"`
	Failures     int             `json:"failures"`
}

func (r *rig) do(method, path, body string, header ...string) reply {
	r.t.Helper()
	got, err := r.try(method, path, body, header...)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	return got
}

// try is do for answers that may not come.
func (r *rig) try(method, path, body string, header ...string) (reply, error) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.web.URL+path, bytes.NewReader([]byte(body)))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer test-key")
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	got := reply{Status: resp.StatusCode, Header: resp.Header}
	if got.Raw, err = io.ReadAll(resp.Body); err != nil {
		return got, err
	}
	_ = json.Unmarshal(got.Raw, &got) // who needs an envelope looks at its fields
	return got, nil
}

func (r *rig) post(path, body string, header ...string) reply {
	r.t.Helper()
	return r.do(http.MethodPost, path, body, header...)
}

func (r *rig) get(path string) reply {
	r.t.Helper()
	return r.do(http.MethodGet, path, "")
}

// want checks status and code; an empty code is a success.
func (got reply) want(t *testing.T, status int, code string) {
	t.Helper()
	if got.Status != status {
		t.Fatalf("status %d, want %d: %s", got.Status, status, got.Raw)
	}
	switch {
	case code == "" && !got.OK:
		t.Fatalf("not ok: %s", got.Raw)
	case code != "" && (got.OK || got.Error == nil || got.Error.Code != code):
		t.Fatalf("answer %s, want the code %s", got.Raw, code)
	}
}

// text returns a text field of the data.
func (got reply) text(t *testing.T, field string) string {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(got.Data, &fields); err != nil {
		t.Fatalf("data %s: %v", got.Data, err)
	}
	text, _ := fields[field].(string)
	return text
}

// items returns a list in the data.
func (got reply) items(t *testing.T, key string) []item {
	t.Helper()
	var fields map[string][]item
	if err := json.Unmarshal(got.Data, &fields); err != nil {
		t.Fatalf("data %s: %v", got.Data, err)
	}
	return fields[key]
}
