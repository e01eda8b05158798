package scenario_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// quick are waits that a test can afford.
var quick = map[string]string{
	"RELAY_RETRY_MIN": "10ms", "RELAY_RETRY_MAX": "100ms", "RELAY_PROBE_MIN": "50ms", "RELAY_PROBE_MAX": "200ms",
}

// arrivals are the times at which the requests for a key came in.
func arrivals(w *scenario.World, key string) (times []time.Time) {
	for _, e := range w.Published() {
		if e.Key == key {
			times = append(times, e.Time)
		}
	}
	return times
}

// probesOnly checks that requests came one after the other, with RELAY_PROBE_MIN=100ms:
// a probe waits for half of that at first, and then for all of it. So many may have been
// under way when sending was paused. Some of these may come in late, between the probes,
// where the machine is busy: so it is the time of all that is looked at.
func probesOnly(t *testing.T, came []time.Time, underWay int) {
	t.Helper()
	took := slices.MaxFunc(came, time.Time.Compare).Sub(slices.MinFunc(came, time.Time.Compare))
	if probes := len(came) - underWay; took < time.Duration(probes)*100*time.Millisecond-50*time.Millisecond {
		t.Errorf("%d requests within %s: at least %d of them should have been probes", len(came), took, probes)
	}
}

// noDeadLetters fails when something was set aside.
func noDeadLetters(t *testing.T, w *scenario.World) {
	t.Helper()
	if n := w.Count(`select count(*) from outbox.dead_letters`); n != 0 {
		t.Errorf("%d dead letters, want none", n)
	}
}

// drips is a front that answers some keys with less than an answer, until it is
// told to stop that. It notes when requests came in.
type drips struct {
	over atomic.Bool

	mu   sync.Mutex
	came map[string][]time.Time
}

func (d *drips) front(next http.Handler, left <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind, _, _ := strings.Cut(d.note(r), "-")
		if d.over.Load() || kind == "free" {
			next.ServeHTTP(w, r)
			return
		}
		if kind == "unread" {
			<-left // the body stays where it is
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		switch kind {
		case "headers":
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				drip(conn, "HTTP/1.1 200 OK\r\nX-Filler: ", left)
			}
		case "body":
			w.WriteHeader(http.StatusOK)
			drip(flushing{w}, `{"ok":true,"data":{"message_id":"`, left)
		default:
			<-r.Context().Done()
		}
	})
}

func (d *drips) note(r *http.Request) (key string) {
	key = r.Header.Get("Idempotency-Key")
	d.mu.Lock()
	defer d.mu.Unlock()
	d.came[key] = append(d.came[key], time.Now())
	return key
}

func (d *drips) arrivals(key string) []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]time.Time(nil), d.came[key]...)
}

// drip writes a beginning, and then a letter now and again for ever.
func drip(to io.Writer, beginning string, left <-chan struct{}) {
	if conn, ok := to.(net.Conn); ok {
		defer conn.Close()
	}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	_, err := io.WriteString(to, beginning)
	for err == nil {
		select {
		case <-ticker.C:
			_, err = io.WriteString(to, "x")
		case <-left:
			return
		}
	}
}

// flushing sends every piece at once.
type flushing struct{ http.ResponseWriter }

func (f flushing) Write(text []byte) (int, error) {
	if _, err := f.ResponseWriter.Write(text); err != nil {
		return 0, err
	}
	return len(text), http.NewResponseController(f.ResponseWriter).Flush()
}

// HTTP-06: the queue never answers, drips headers, drips a body for ever, or
// leaves the request unread. Each attempt ends at its timeout and comes again;
// other keys go on, and so do the standby statuses.
func TestHTTP06_TheQueueDrips(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	w := scenario.New(t).With(quick).With(map[string]string{
		"INFRAI_REQUEST_TIMEOUT": timeout.String(), "RELAY_STATUS_INTERVAL": "200ms",
	})
	slow := &drips{came: map[string][]time.Time{}}
	w.Before(slow.front)
	r := w.Start()
	r.AwaitLog("session began")
	replied := func() int64 {
		return w.Count(`select (extract(epoch from r.reply_time) * 1000000)::bigint
			from pg_stat_replication r join pg_replication_slots s on s.active_pid = r.pid where s.slot_name = $1`, w.Env["RELAY_SLOT"])
	}
	var stuck []scenario.Message
	for i := range 5 {
		for _, kind := range []string{"mute", "headers", "body", "unread"} {
			m := scenario.Message{Key: fmt.Sprintf("%s-%d", kind, i), OrderingKey: kind}
			if kind == "unread" {
				m.Payload = fmt.Sprintf(`{"filler":%q}`, strings.Repeat("x", 200_000))
			}
			stuck = append(stuck, m)
		}
	}
	w.Insert(stuck...)
	for round := range 4 { // the first of each lane is tried again and again
		w.Insert(scenario.Batch(fmt.Sprintf("free-%d", round), 20, "free", "")...)
		before := replied()
		for _, m := range stuck[:4] {
			pgtest.Eventually(t, scenario.Patience, func() error {
				if n := len(slow.arrivals(m.Key)); n <= round {
					return fmt.Errorf("%d requests for %s", n, m.Key)
				}
				return nil
			})
		}
		pgtest.Eventually(t, scenario.Patience, func() error {
			if replied() <= before {
				return fmt.Errorf("no standby status while the queue drips")
			}
			return nil
		})
	}
	pgtest.Eventually(t, scenario.Patience, func() error {
		if got := len(w.Queue.Accepted("")); got != 80 {
			return fmt.Errorf("%d messages of other keys were accepted, want all 80", got)
		}
		return nil
	})
	slow.over.Store(true)
	w.Settle()
	noDeadLetters(t, w)
	for _, m := range stuck[:4] {
		times := slow.arrivals(m.Key)
		for i := 1; i < len(times)-1; i++ { // the last two may be the first after the end of it
			// A request may come in long after its time began, on a busy machine. What ends
			// before its time is repeated within a tenth of a second.
			if gap := times[i].Sub(times[i-1]); gap < timeout/4 {
				t.Errorf("%s came again after %s: an attempt ended before its time", m.Key, gap)
			}
		}
	}
}

// HTTP-07: a 2xx that does not say that the message was taken is no success,
// and the same request comes again. 201 and 202 are, with the queue's envelope.
func TestHTTP07_SuccessThatIsNone(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(quick)
	answers := []struct {
		status      int
		kind, words string
	}{
		{200, "application/json", `{"error":"quota"}`},
		{207, "application/json", `{"ok":true,"data":{"message_id":"msg_1"},"results":[{"status":500}]}`},
		{202, "application/json", ``},
		{204, "", ``},
		{206, "application/json", `{"ok":true,"data":{"message_id":"msg_1"}}`},
		{200, "text/html", `<html><body>Please log in</body></html>`},
	}
	const times = 3
	var asked [6]atomic.Int64
	w.Before(func(next http.Handler, _ <-chan struct{}) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var n int
			_, err := fmt.Sscanf(r.Header.Get("Idempotency-Key"), "no-%d", &n)
			if err != nil || asked[n].Add(1) > times {
				next.ServeHTTP(w, r)
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", answers[n].kind)
			w.WriteHeader(answers[n].status)
			_, _ = io.WriteString(w, answers[n].words)
		})
	})
	w.Insert(scenario.Batch("no", len(answers))...)
	r := w.Start()
	w.Settle()
	noDeadLetters(t, w)
	for i := range answers {
		if got := asked[i].Load(); got != times+1 {
			t.Errorf("status %d: %d requests, want %d", answers[i].status, got, times+1)
		}
	}
	if r.Logs().FilterMessage("sending paused").Len() == 0 {
		t.Error("eighteen answers that make no sense, and no word about it")
	}
	for _, status := range []string{"201", "202"} {
		if err := w.Queue.SetSettings(emulator.Settings{SuccessStatus: status}); err != nil {
			t.Fatal(err)
		}
		w.Insert(scenario.Message{Key: "yes-" + status})
		w.Settle()
		if got := w.Requests("yes-" + status); got != 1 {
			t.Errorf("%s with an envelope: %d requests, want 1", status, got)
		}
	}
}

// HTTP-08: a proxy answers with pages for a while. That is no reason to set
// anything aside, or to hammer.
func TestHTTP08_ErrorPagesOfAProxy(t *testing.T) {
	t.Parallel()
	const inFlight = 16
	w := scenario.New(t).With(quick).With(map[string]string{
		"RELAY_MAX_IN_FLIGHT": fmt.Sprint(inFlight), "RELAY_PROBE_MIN": "100ms", "RELAY_PROBE_MAX": "200ms",
	})
	for i, status := range []int{502, 503, 504, 520, 599} {
		w.Fault(emulator.Fault{
			Route: "queue.publish", Every: 5 - i, Status: status, Body: emulator.BodyHTML, Size: 100_000,
		})
	}
	messages := scenario.Batch("m", 500, "a", "b", "c", "")
	w.Commit(w.Conn, messages...)
	r := w.Start()
	const probes = 8
	pgtest.Eventually(t, scenario.Patience, func() error {
		if n := len(w.Published()); n < 2*inFlight+probes {
			return fmt.Errorf("%d requests", n)
		}
		return nil
	})
	entries := w.Published()
	w.Queue.ClearFaults()
	times := make([]time.Time, len(entries))
	for i, e := range entries {
		times[i] = e.Time
		if e.Outcome != emulator.Failed {
			t.Fatalf("request %d: %s, want only failures so far", i, e.Outcome)
		}
	}
	probesOnly(t, times, inFlight+5)
	w.Settle()
	noDeadLetters(t, w)
	if n := r.Logs().FilterMessage("sending paused").Len(); n != 1 {
		t.Errorf("%d lines about one pause", n)
	}
	for _, line := range r.Logs().All() {
		if text := fmt.Sprint(line.ContextMap()); strings.Contains(text, "<html") || strings.Contains(text, "filler") {
			t.Fatalf("a page in the log: %s %s", line.Message, text)
		}
	}
}

// HTTP-09: redirects are not followed, and say so. Nothing reaches the place
// that they lead to: no request, no key.
func TestHTTP09_RedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(quick)
	var visits atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		visits.Add(1)
		_, _ = io.WriteString(w, `{"ok":true,"data":{"message_id":"msg_1"}}`)
	}))
	t.Cleanup(elsewhere.Close)
	host := strings.TrimPrefix(elsewhere.URL, "http://")
	r := w.Start()
	for _, status := range []int{301, 302, 303, 307, 308} {
		key := fmt.Sprintf("m-%d", status)
		location := http.Header{"Location": {elsewhere.URL + "/login?token=secret"}}
		w.Fault(emulator.Fault{Key: key, Count: 2, Status: status, Header: location, Body: emulator.BodyEmpty})
		w.Insert(scenario.Message{Key: key, OrderingKey: "a"})
		w.AwaitAccepted()
		if got := w.Requests(key); got != 3 {
			t.Errorf("%d: %d requests, want 3", status, got)
		}
	}
	loop := http.Header{"Location": {w.QueueURL + "/v1/queue/publish"}}
	w.Fault(emulator.Fault{Key: "loop", Count: 1, Status: 307, Header: loop, Body: emulator.BodyEmpty})
	w.Insert(scenario.Message{Key: "loop", OrderingKey: "a"})
	w.Settle()
	noDeadLetters(t, w)
	if n := visits.Load(); n != 0 {
		t.Errorf("%d requests went where a redirect leads", n)
	}
	lines := r.Logs().FilterMessage("sending paused").All()
	if len(lines) < 5 {
		t.Fatalf("%d lines about five redirects", len(lines))
	}
	text := fmt.Sprint(lines[0].ContextMap())
	if !strings.Contains(text, host) || strings.Contains(text, "secret") {
		t.Errorf("the line names too little or too much: %s", text)
	}
}
