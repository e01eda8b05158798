package infrai_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/relay"
)

// counting starts a server that counts its connections.
func counting(t *testing.T, handler http.HandlerFunc) (base string, connections *atomic.Int64) {
	t.Helper()
	connections = new(atomic.Int64)
	web := httptest.NewUnstartedServer(handler)
	web.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	web.Start()
	t.Cleanup(web.Close)
	return web.URL, connections
}

// HTTP-11: answers are read to their end whatever they are, so that connections
// are used again.
func TestPublish_ReusesConnections(t *testing.T) {
	t.Parallel()
	filler := strings.Repeat("x", 2000)
	page := strings.Repeat(htmlPage, 3000) // longer than what is looked at
	var n, now, peak atomic.Int64
	base, connections := counting(t, func(w http.ResponseWriter, _ *http.Request) {
		defer now.Add(-1)
		for at, before := now.Add(1), peak.Load(); at > before && !peak.CompareAndSwap(before, at); before = peak.Load() {
		}
		switch n.Add(1) % 4 {
		case 0:
			_, _ = fmt.Fprintf(w, `{"ok":true,"filler":%q}`, filler)
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte(filler))
		case 2:
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = fmt.Fprintf(w, `{"ok":false,"error":{"code":"RATE_LIMITED","message":%q}}`, filler)
		case 3:
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte(page))
		}
	})
	const most, workers, rows = 8, 32, 800
	cfg := settings(base)
	cfg.MaxConnections = most
	p := newPublisher(t, cfg)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rows / workers {
				_, _ = p.Publish(t.Context(), message("k")) // both outcomes are meant
			}
		})
	}
	wg.Wait()
	if got := peak.Load(); got > most {
		t.Errorf("%d requests at once, want at most %d", got, most)
	}
	// The transport gives a connection up whose request it has not seen written 50 ms
	// after the answer. That is rare on any machine; a kind of answer that is not read
	// to its end costs a connection each time, one in four.
	if got := connections.Load(); got > rows/10 {
		t.Errorf("%d connections for %d requests, want about %d", got, n.Load(), most)
	}
}

func TestPublish_ReplacesOldConnections(t *testing.T) {
	t.Parallel()
	base, connections := counting(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(accepted)) })
	cfg := settings(base)
	cfg.ConnectionMaxAge = time.Nanosecond
	p := newPublisher(t, cfg)
	for range 5 {
		if _, err := p.Publish(t.Context(), message("k")); err != nil {
			t.Fatal(err)
		}
	}
	if got := connections.Load(); got != 5 {
		t.Errorf("%d connections for 5 requests, want 5", got)
	}
}

// HTTP-14: the proxy of the environment is used, told without its password, and
// NO_PROXY is respected.
func TestPublish_UsesTheProxyOfTheEnvironment(t *testing.T) {
	var through atomic.Value
	proxy := answering(t, func(w http.ResponseWriter, r *http.Request) {
		through.Store(r.Method + " " + r.URL.String())
		_, _ = w.Write([]byte(accepted))
	})
	t.Setenv("HTTP_PROXY", strings.Replace(proxy, "http://", "http://user:secret-1@", 1))

	t.Setenv("NO_PROXY", "")
	p, logs := observed(t, settings("http://queue.invalid"))
	if _, err := p.Publish(t.Context(), message("k")); err != nil {
		t.Fatal(err)
	}
	if want := "POST http://queue.invalid/v1/queue/publish"; through.Load() != want {
		t.Errorf("the proxy saw %v, want %s", through.Load(), want)
	}
	if text := logs(); !strings.Contains(text, proxy) || strings.Contains(text, "secret-1") {
		t.Errorf("the log says %q, want the proxy without its password", text)
	}

	t.Setenv("NO_PROXY", "queue.invalid")
	p, logs = observed(t, settings("http://queue.invalid"))
	if _, err := p.Publish(t.Context(), message("k")); refusal(t, err).Class != relay.Transient {
		t.Errorf("error %v, want no such host", err)
	}
	if text := logs(); strings.Contains(text, "proxy") {
		t.Errorf("the log says %q, want no proxy", text)
	}
}
