package doctor_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/secret"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

const noDatabase = "postgres://nobody@127.0.0.1:1/app?sslmode=disable"

func TestD48_WrongKey(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, noDatabase)
	cfg.Queue.APIKey = secret.New("ifr_the_wrong_key")
	r := expect(t, cfg, "D48", doctor.Fail, "the API key is refused", "401", "INFRAI_API_KEY")
	if text := r.Message + r.Observed + r.Remedy; strings.Contains(text, "ifr_the_wrong_key") {
		t.Errorf("the key is in %q", text)
	}
	file := filepath.Join(t.TempDir(), "key")
	cfg.Queue.APIKey, cfg.Queue.APIKeyFile = secret.Text{}, file
	expect(t, cfg, "D48", doctor.Fail, file)
	if err := os.WriteFile(file, []byte(apiKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, cfg, "D48", doctor.Pass, "key accepted")
	if err := os.WriteFile(file, []byte("two words\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, cfg, "D48", doctor.Fail, "no API key", "on one line", "INFRAI_API_KEY_FILE")
}

// A relay that has the doctor look by itself leaves the queue alone.
func TestD48_LeftAlone(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, noDatabase)
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the queue is asked") }))
	defer web.Close()
	cfg.Queue.BaseURL, cfg.LeaveQueue = web.URL, true
	expect(t, cfg, "D48", doctor.Skip, "not asked")
}

// Any server at a wrong address says 404: that is no missing queue.
func TestD48_NotAQueue(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	execute(t, url, `insert into outbox.messages (key, queue, payload) values ('a', 'orders', '{}')`)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/discovery/queue.publish" {
			_, _ = w.Write([]byte(described))
			return
		}
		http.NotFound(w, r)
	}))
	defer web.Close()
	cfg.Queue.BaseURL = web.URL
	expect(t, cfg, "D48", doctor.Fail, "404", "INFRAI_BASE_URL")
}

func TestD48_MissingQueue(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	execute(t, url, `insert into outbox.messages (key, queue, payload) values ('a', 'orders', '{}'), ('b', 'invoices', '{}')`)
	expect(t, cfg, "D48", doctor.Fail, "missing: invoices", "/v1/queue/create")
	execute(t, url, `delete from outbox.messages where key = 'b'`)
	expect(t, cfg, "D48", doctor.Pass, "has orders")
}

func TestD48_NeverPublishes(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newConfig(t, url)
	queue, server := newQueue(t)
	cfg.Queue = queue
	execute(t, url, `insert into outbox.messages (key, queue, payload) values ('a', 'orders', '{}')`)
	expect(t, cfg, "D48", doctor.Pass)
	entries := server.Journal().Entries(0, 0)
	if len(entries) == 0 {
		t.Fatal("the journal is empty")
	}
	for _, entry := range entries {
		switch entry.Route {
		case "discovery", "queue.get", "queue.list":
		default:
			t.Errorf("calls %s", entry.Route)
		}
	}
}

func TestD48_WrongSettings(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, noDatabase)
	cfg.Queue = infrai.Config{}
	cfg.QueueSettings = cfg.Queue.Validate()
	expect(t, cfg, "D48", doctor.Fail, "API_KEY")
}

func TestD48_Answers(t *testing.T) {
	t.Parallel()
	discovery := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/v1/discovery/") {
				_, _ = w.Write([]byte(text))
				return
			}
			_, _ = w.Write([]byte(`{"ok":true,"data":{"items":[]}}`))
		}
	}
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/v1/discovery/") {
				discovery(described)(w, r)
				return
			}
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			_, _ = w.Write([]byte(`{"ok":false,"error":{"code":"SOME_CODE","message":"you sent ` + r.Header.Get("Authorization") + `"}}`))
		}
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   doctor.Status
		text   string
	}{
		"as described":          {discovery(described), doctor.Pass, "key accepted"},
		"no such capability":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, doctor.Fail, "404"},
		"not JSON":              {discovery("<html>"), doctor.Warn, "not the expected JSON"},
		"without params":        {discovery(`{"method":"POST"}`), doctor.Warn, "no params"},
		"another method":        {discovery(strings.Replace(described, "POST", "PUT", 1)), doctor.Warn, `"PUT"`},
		"another path":          {discovery(strings.Replace(described, "/v1/queue/publish", "/v2/publish", 1)), doctor.Warn, `"/v2/publish"`},
		"not available":         {discovery(strings.Replace(described, "true", "false", 1)), doctor.Warn, "not available"},
		"a new required field":  {discovery(strings.Replace(described, `["queue"`, `["tenant","queue"`, 1)), doctor.Warn, "tenant"},
		"without payload":       {discovery(strings.ReplaceAll(described, "payload", "body")), doctor.Warn, "payload"},
		"payload of a new type": {discovery(strings.Replace(described, `"object"}`, `"string"}`, 1)), doctor.Warn, "does not fit"},
		"no credit":             {status(http.StatusPaymentRequired), doctor.Fail, "no credit"},
		"forbidden":             {status(http.StatusForbidden), doctor.Fail, "the API key may not do this"},
		"too many requests":     {status(http.StatusTooManyRequests, "Retry-After", "1"), doctor.Warn, "wait"},
		"broken":                {status(http.StatusBadGateway), doctor.Fail, "502 SOME_CODE"},
		"redirect":              {status(http.StatusTemporaryRedirect, "Location", "http://127.0.0.1:1/"), doctor.Fail, "redirects"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			web := httptest.NewServer(c.answer)
			defer web.Close()
			cfg := newConfig(t, noDatabase)
			cfg.Queue.BaseURL = web.URL
			r := expect(t, cfg, "D48", c.want, c.text)
			if text := r.Message + r.Observed + r.Remedy; strings.Contains(text, apiKey) {
				t.Errorf("the key is in %q", text)
			}
		})
	}
}

const described = `{"id":"queue.publish","method":"POST","path":"/v1/queue/publish","available":true,"idempotent":true,
	"params":{"type":"object","required":["queue","payload"],"properties":{"queue":{"type":"string"},
	"payload":{"type":"object"},"idempotency_key":{"type":"string"},"delay_seconds":{"type":"number"}}}}`

func TestD48_BothFormsOfParams(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"schema", "fields"} {
		cfg := newConfig(t, noDatabase)
		queue, server := newQueue(t)
		if err := server.SetSettings(emulator.Settings{DiscoveryParams: form}); err != nil {
			t.Fatal(err)
		}
		cfg.Queue = queue
		expect(t, cfg, "D48", doctor.Pass)
	}
}

func TestD48_Unreachable(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, noDatabase)
	cfg.Queue.BaseURL = "http://127.0.0.1:1" // nobody gets this port
	expect(t, cfg, "D48", doctor.Fail, "cannot reach", "127.0.0.1:1", "refused", "outbox-relay emulator")
}
