package scenario

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/netfault"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// Proxy stands between the relays to come and Postgres. The test's own
// connections go past it.
func (w *World) Proxy() *netfault.Proxy {
	w.t.Helper()
	address, err := url.Parse(w.URL)
	if err != nil {
		w.t.Fatalf("proxy: %v", err)
	}
	proxy, err := netfault.New(address.Host)
	if err != nil {
		w.t.Fatalf("proxy: %v", err)
	}
	w.t.Cleanup(func() { _ = proxy.Close() })
	address.Host = proxy.Addr()
	w.Env["DATABASE_URL"] = address.String()
	return proxy
}

// Front is a handler between the relays to come and the queue: it answers
// itself, or hands a request on to next. Left is closed at the test's end, for
// handlers that wait.
type Front func(next http.Handler, left <-chan struct{}) http.Handler

// Before puts a handler before the queue.
func (w *World) Before(front Front) *httptest.Server {
	w.t.Helper()
	left := make(chan struct{})
	server := httptest.NewServer(front(w.Queue, left))
	w.t.Cleanup(func() {
		close(left)
		server.CloseClientConnections()
		server.Close()
	})
	w.Env["INFRAI_BASE_URL"] = server.URL
	return server
}

// Reconnect replaces the test's connection once the server is there again.
func (w *World) Reconnect() {
	w.t.Helper()
	_ = w.Conn.Close(context.Background())
	pgtest.Eventually(w.t, Patience, func() (err error) {
		w.Conn, err = pgx.Connect(context.Background(), w.URL)
		return err
	})
	conn := w.Conn
	w.t.Cleanup(func() { _ = conn.Close(context.Background()) })
}

// Throughout checks again and again that something holds, for that long.
func Throughout(t *testing.T, span time.Duration, check func() error) {
	t.Helper()
	over := time.NewTimer(span)
	defer over.Stop()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		if err := check(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ticker.C:
		case <-over.C:
			return
		}
	}
}
