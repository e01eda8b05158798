package infraiadmin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outbox-relay/outbox-relay/internal/infraiadmin"
	"github.com/outbox-relay/outbox-relay/internal/secret"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const apiKey = "ifr_key_of_the_test"

// configFor are the settings for a queue at an address.
func configFor(url string) infrai.Config {
	return infrai.Config{BaseURL: url, APIKey: secret.New(apiKey), RequestTimeout: 30 * time.Second}
}

// newClient makes a client, which is closed at the test's end.
func newClient(t *testing.T, cfg infrai.Config) *infraiadmin.Client {
	t.Helper()
	c, err := infraiadmin.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// serve serves a handler and returns a client for it.
func serve(t *testing.T, handler http.Handler) *infraiadmin.Client {
	t.Helper()
	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)
	return newClient(t, configFor(web.URL))
}

// newQueue starts an emulated queue.
func newQueue(t *testing.T, cfg emulator.Config) (*infraiadmin.Client, *emulator.Server) {
	t.Helper()
	cfg.APIKey = apiKey
	server := emulator.New(cfg)
	client := serve(t, server)
	t.Cleanup(server.Close) // before the web server, which waits for hanging answers
	return client, server
}

// answering answers everything alike.
func answering(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func addFault(t *testing.T, server *emulator.Server, f emulator.Fault) {
	t.Helper()
	if _, err := server.AddFault(f); err != nil {
		t.Fatal(err)
	}
}

// expectNoKey fails if a text holds the API key.
func expectNoKey(t *testing.T, text string) {
	t.Helper()
	if strings.Contains(text, apiKey) {
		t.Errorf("the key is in %q", text)
	}
}
