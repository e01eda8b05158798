package scenario_test

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// HTTP-03: the queue stores messages and its answers are lost, and meanwhile
// the relay is killed and stopped: the same key and the same bytes come again.
func TestHTTP03_LostAnswersAndAKill(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(quick).With(map[string]string{"INFRAI_REQUEST_TIMEOUT": "300ms"})
	for i, cut := range []emulator.Cut{emulator.CutReset, emulator.CutClose, emulator.CutHalf} {
		w.Fault(emulator.Fault{Route: "queue.publish", Probability: 0.1, Seed: uint64(i + 1), Store: true, Cut: cut})
	}
	w.Fault(emulator.Fault{Route: "queue.publish", Every: 40, Store: true, Delay: time.Second})
	lanes := make([]string, 20)
	for i := range lanes {
		lanes[i] = fmt.Sprintf("k%d", i)
	}
	messages := scenario.Batch("m", 600, lanes...)
	w.Insert(messages[:200]...)
	p := process(t, w, nil)
	w.AwaitRequest("m-100")
	kill(t, p)
	p = process(t, w, nil)
	w.Insert(messages[200:400]...)
	w.AwaitRequest("m-300")
	terminate(t, p)
	p.AwaitExit(t, 0)
	process(t, w, nil)
	w.Insert(messages[400:]...)
	w.Settle()
	noDeadLetters(t, w)
	repeated := 0
	for _, m := range messages {
		if w.Requests(m.Key) > 1 {
			repeated++
		}
	}
	if repeated < len(messages)/10 {
		t.Errorf("%d keys were sent twice: the test shows little", repeated)
	}
}

// HTTP-04: the queue speaks HTTP/2 and is deployed again and again: each time it
// says GOAWAY while requests are on their way.
func TestHTTP04_GoAway(t *testing.T) {
	t.Parallel()
	// More in flight than a connection lasts would meet one GOAWAY after the
	// other, and Go's client waits a second before it tries a third time.
	w := scenario.New(t).With(quick).With(map[string]string{"RELAY_MAX_IN_FLIGHT": "16"})
	var requests atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		if requests.Add(1)%50 == 0 {
			answer.Header().Set("Connection", "close") // over HTTP/2 this is a GOAWAY
		}
		w.Queue.ServeHTTP(answer, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(authority, text, 0o600); err != nil {
		t.Fatal(err)
	}
	w.Env["INFRAI_BASE_URL"], w.Env["SSL_CERT_FILE"] = server.URL, authority
	for i := range 10 {
		w.Commit(w.Conn, scenario.Batch(fmt.Sprintf("m%d", i), 100, "a", "b", "c", "d", "", "", "", "")...)
	}
	process(t, w, nil)
	w.Settle()
	noDeadLetters(t, w)
	connections := map[string]bool{}
	for _, e := range w.Published() {
		connections[e.Connection] = true
		if e.Proto != "HTTP/2.0" {
			t.Fatalf("%s came over %s", e.Key, e.Proto)
		}
	}
	if len(connections) < 5 {
		t.Errorf("%d connections for %d requests: the fault did not happen", len(connections), requests.Load())
	}
}

// HTTP-05: the server closes connections just as they are used. No message is
// counted out for it, and nobody is bothered.
func TestHTTP05_IdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(quick)
	var idle atomic.Int64
	server := httptest.NewUnstartedServer(w.Queue)
	server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateIdle && idle.Add(1)%3 == 0 {
			_ = conn.Close()
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	w.Env["INFRAI_BASE_URL"] = server.URL
	w.Fault(emulator.Fault{Route: "queue.publish", Every: 7, Cut: emulator.CutClose})
	r := w.Start()
	for _, m := range scenario.Batch("m", 60, "a", "b", "") {
		w.Insert(m)
		w.AwaitAccepted()
	}
	w.Settle()
	noDeadLetters(t, w)
	if most := w.Count(`select max(attempts) from outbox.dispatched`); most > 5 {
		t.Errorf("a message took %d attempts", most)
	}
	if n := r.Logs().FilterMessage("sending paused").Len(); n > 0 {
		t.Errorf("sending was paused %d times", n)
	}
}

// HTTP-11: connections are used again, whatever the answers are.
func TestHTTP11_ConnectionsAreReused(t *testing.T) {
	t.Parallel()
	const inFlight = 8
	w := scenario.New(t).With(quick).With(map[string]string{
		"RELAY_MAX_IN_FLIGHT": fmt.Sprint(inFlight), "INFRAI_MAX_CONNECTIONS": fmt.Sprint(inFlight),
	})
	w.Fault(emulator.Fault{Route: "queue.publish", Probability: 0.1, Seed: 1, Status: 500, Body: emulator.BodyHTML, Size: 2000})
	w.Fault(emulator.Fault{Route: "queue.publish", Probability: 0.01, Seed: 2, Status: 429, Message: strings.Repeat("slowly ", 300)})
	w.Fault(emulator.Fault{Route: "queue.publish", Probability: 0.05, Seed: 3, Status: 502, Body: emulator.BodyHTML, Size: 200_000})
	for i := range 10 {
		w.Commit(w.Conn, scenario.Batch(fmt.Sprintf("m%d", i), 100, "a", "b", "c", "d", "")...)
	}
	w.Start()
	w.Settle()
	connections := map[string]bool{}
	for _, e := range w.Published() {
		connections[e.Connection] = true
	}
	// A few more than the limit: a stop of the session gives up what it had.
	if len(connections) > 2*inFlight {
		t.Errorf("%d connections for %d requests, %d at once", len(connections), len(w.Published()), inFlight)
	}
}
