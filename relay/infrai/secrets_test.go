package infrai_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outbox-relay/outbox-relay/internal/secret"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// observed makes a publisher and returns what it logs at any level, as JSON.
func observed(t *testing.T, cfg infrai.Config) (*infrai.Publisher, func() string) {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	p, err := infrai.New(cfg, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, func() string {
		var text strings.Builder
		for _, entry := range logs.All() {
			fields, err := json.Marshal(entry.ContextMap())
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&text, "%s %s\n", entry.Message, fields)
		}
		return text.String()
	}
}

// SEC-05: whatever goes wrong, and although the queue repeats the payload in
// every place of its answer, no error and no log line holds any of it.
func TestPublish_NeverTellsThePayload(t *testing.T) {
	t.Parallel()
	const marker = "PII-123"
	queue, base := newEmulator(t)
	faults := []emulator.Fault{
		{Body: emulator.BodyEcho},
		{Body: emulator.BodyEcho, Status: 200},
		{Body: emulator.BodyEcho, Status: 422, RetryAfter: marker},
		{Status: 400, Code: marker, Message: marker},
		{Status: 500, Code: marker, Message: marker},
		{Status: 429, Message: marker, RetryAfter: "1"},
		{Status: 409, Message: marker},
		{Status: 401, Message: marker},
		{Status: 404, Message: marker},
		{Status: 302, Header: http.Header{"Location": {"https://" + marker + "@host.invalid/" + marker + "?q=" + marker}}},
		{Status: 200, Body: emulator.BodyHTML, Header: http.Header{"X-Infrai-Request-Id": {"no id " + marker}}},
		{Status: 502, Body: emulator.BodyHTML},
		{Store: true, Body: emulator.BodyTruncated},
		{Store: true, Body: emulator.BodyBroken},
		{Cut: emulator.CutReset},
		{Cut: emulator.CutHalf},
		{Cut: emulator.CutClose},
		{Hang: true},
	}
	for i, f := range faults {
		f.Key = fmt.Sprint("k", i)
		script(t, queue, f)
	}
	raw := map[string]string{
		"a status line":    "HTTP/1.1 " + marker + "\r\n\r\n",
		"no HTTP":          `{"n": "` + marker + `"}` + "\r\n\r\n",
		"a header line":    "HTTP/1.1 200 OK\r\nno colon " + marker + "\r\n\r\n",
		"a length":         "HTTP/1.1 200 OK\r\nContent-Length: " + marker + "\r\n\r\n",
		"a coding":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + marker + "\r\n\r\n",
		"a chunk":          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + marker + "\r\n",
		"a content type":   "HTTP/1.1 200 OK\r\nContent-Type: text/" + strings.Repeat(marker, 20) + "\r\nContent-Length: 0\r\n\r\n",
		"the reason":       "HTTP/1.1 400 " + marker + "\r\nContent-Length: 0\r\n\r\n",
		"a location":       "HTTP/1.1 302 Found\r\nLocation: /" + marker + "\r\nContent-Length: 0\r\n\r\n",
		"a wrong protocol": "SSH-2.0-" + marker + "\r\n\r\n",
	}
	check := func(where string, err error, logs string) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error", where)
			return
		}
		refused := refusal(t, err)
		stored := fmt.Sprint(refused.Message, refused.Code, refused.RequestID, err)
		if strings.Contains(stored, marker) || strings.Contains(logs, marker) {
			t.Errorf("%s: the payload is told: %s %s", where, stored, logs)
		}
		if text := err.Error(); len(text) > 250 || strings.ContainsAny(text, "\r\n") {
			t.Errorf("%s: not one short line: %q", where, text)
		}
	}
	cfg := settings(base)
	cfg.RequestTimeout = 500 * time.Millisecond
	p, logs := observed(t, cfg)
	for i := range faults {
		row := message(fmt.Sprint("k", i))
		row.Payload = `{"name": "` + marker + `"}`
		_, err := p.Publish(t.Context(), row)
		check(fmt.Sprintf("%+v", faults[i]), err, logs())
	}
	for where, answer := range raw {
		cfg := settings(listen(t, func(c net.Conn) {
			_, _ = readRequest(c)
			_, _ = c.Write([]byte(answer))
		}))
		p, logs := observed(t, cfg)
		row := message("k")
		row.Payload = `{"name": "` + marker + `"}`
		_, err := p.Publish(t.Context(), row)
		check(where, err, logs())
	}
	p, logs = observed(t, cfg)
	row := message("k")
	row.Payload = `{"name": "` + marker + `"`
	_, err := p.Publish(t.Context(), row)
	check("a payload that is broken", err, logs())
}

// SEC-01: the key and secrets in the address are told by nothing.
func TestConfig_NeverTellsSecrets(t *testing.T) {
	t.Parallel()
	const token = "S3cr%25zz"
	for _, base := range []string{
		"https://user:" + token + "@host.invalid", "https://" + token + "@host.invalid",
		"https://host.invalid?token=" + token, "https://host.invalid/#" + token,
		"://" + token, "https://host.invalid/%zz" + token, "ftp://host.invalid/" + token, "http:///" + token, token,
	} {
		cfg := settings(base)
		_, err := infrai.New(cfg, zap.NewNop())
		if err == nil {
			t.Errorf("%s was taken", base)
			continue
		}
		if strings.Contains(err.Error(), "S3cr") {
			t.Errorf("the error tells the secret: %v", err)
		}
		if !strings.Contains(err.Error(), "BASE_URL") {
			t.Errorf("the error does not name the setting: %v", err)
		}
	}
	cfg := settings("https://host.invalid")
	cfg.APIKey = secret.New("S3cr-key")
	text := fmt.Sprintf("%v %+v %#v", cfg, cfg, cfg)
	asJSON, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "S3cr") || strings.Contains(string(asJSON), "S3cr") {
		t.Errorf("the settings tell the key: %s %s", text, asJSON)
	}
	cfg.APIKey = secret.New("S3cr key\r\nX-Admin: yes")
	if err := cfg.Validate(); err == nil || strings.Contains(err.Error(), "S3cr") {
		t.Errorf("a key with a space and a line break: %v", err)
	}
}
