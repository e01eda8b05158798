package infrai_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/secret"
	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

func TestMain(m *testing.M) {
	if err := trustTestServers(); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// trustTestServers makes the certificate of httptest's servers a known one for
// this process. The publisher has no roots but the system's, which are read once.
func trustTestServers() error {
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	file, err := os.CreateTemp("", "roots-*.pem")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	if err := pem.Encode(file, &pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}); err != nil {
		return err
	}
	if err := os.Setenv("SSL_CERT_FILE", file.Name()); err != nil {
		return err
	}
	_, err = x509.SystemCertPool()
	return errors.Join(err, file.Close())
}

// settings are the defaults, for a queue at base.
func settings(base string) infrai.Config {
	return infrai.Config{
		BaseURL: base, APIKey: secret.New("test-key"),
		RequestTimeout: 10 * time.Second, MaxRetryAfter: 5 * time.Minute, MaxConnections: 256,
		IdleTimeout: 30 * time.Second, ConnectionMaxAge: 5 * time.Minute, MaxBodyBytes: 256_000,
	}
}

// newPublisher makes a publisher that is closed with the test.
func newPublisher(t *testing.T, cfg infrai.Config) *infrai.Publisher {
	t.Helper()
	p, err := infrai.New(cfg, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// newEmulator starts an emulated queue with the queue "orders".
func newEmulator(t *testing.T) (*emulator.Server, string) {
	t.Helper()
	s := emulator.New(emulator.Config{Queues: []string{"orders"}})
	web := httptest.NewServer(s)
	t.Cleanup(func() {
		s.Close()
		web.Close()
	})
	return s, web.URL
}

// answering starts a server that gives every request the same answer.
func answering(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)
	return web.URL
}

// message is a row of the queue "orders".
func message(key string) *outbox.Row {
	return &outbox.Row{ID: 1, Key: key, Queue: "orders", Payload: fmt.Sprintf(`{"n": 1, "key": %q}`, key)}
}

// refusal returns the PublishError that every error is.
func refusal(t *testing.T, err error) *relay.PublishError {
	t.Helper()
	var refused *relay.PublishError
	if !errors.As(err, &refused) {
		t.Fatalf("error %v (%T), want a *relay.PublishError", err, err)
	}
	return refused
}

// script adds a fault to an emulator.
func script(t *testing.T, s *emulator.Server, f emulator.Fault) {
	t.Helper()
	if _, err := s.AddFault(f); err != nil {
		t.Fatal(err)
	}
}
