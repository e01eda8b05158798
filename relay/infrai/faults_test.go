package infrai_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// untilAccepted publishes a row again and again, as the relay would, and returns
// how many attempts it took. A class that would set the row aside is an error.
func untilAccepted(t *testing.T, p *infrai.Publisher, row *outbox.Row) int {
	for attempt := 1; ; attempt++ {
		_, err := p.Publish(t.Context(), row)
		if err == nil {
			return attempt
		}
		var refused *relay.PublishError
		if !errors.As(err, &refused) || refused.Class != relay.UnknownOutcome && refused.Class != relay.Transient {
			t.Errorf("%s, attempt %d: %v, want it to be tried again", row.Key, attempt, err)
			return attempt
		}
		if attempt > 100 {
			t.Errorf("%s: still not accepted: %v", row.Key, err)
			return attempt
		}
	}
}

// HTTP-03: the queue has it, the answer is lost. The next attempts carry the
// same key and the same bytes.
func TestPublish_RepeatsAfterALostAnswer(t *testing.T) {
	t.Parallel()
	queue, base := newEmulator(t)
	for i, f := range []emulator.Fault{
		{Cut: emulator.CutReset},
		{Cut: emulator.CutClose},
		{Cut: emulator.CutHalf},
		{Body: emulator.BodyTruncated},
		{Body: emulator.BodyBroken},
		{Body: emulator.BodyEmpty, Status: 200},
		{Delay: time.Minute},
		{Body: emulator.BodyHTML, Status: 200},
		{Status: 500},
		{Status: 502, Body: emulator.BodyHTML, Size: 100_000},
	} {
		f.Route, f.Store, f.Probability, f.Seed = "queue.publish", f.Delay == 0, 0.04, uint64(i)
		script(t, queue, f)
	}
	cfg := settings(base)
	cfg.RequestTimeout = 400 * time.Millisecond
	p := newPublisher(t, cfg)

	const rows, workers = 400, 20
	var attempts atomic.Int64
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for i := worker; i < rows; i += workers {
				attempts.Add(int64(untilAccepted(t, p, message(fmt.Sprint("row:", i)))))
			}
		})
	}
	wg.Wait()

	if n := attempts.Load(); n < rows*5/4 {
		t.Errorf("%d attempts for %d rows: the faults did not happen", n, rows)
	}
	bodies := map[string]string{}
	for _, e := range queue.Journal().Entries(0, 0) {
		if first, seen := bodies[e.Key]; seen && first != e.BodySHA256 {
			t.Errorf("%s went out with two bodies", e.Key)
		}
		bodies[e.Key] = e.BodySHA256
	}
	if len(bodies) != rows {
		t.Errorf("the queue saw %d keys, want %d", len(bodies), rows)
	}
	if n := queue.Counters().Accepted; n != rows {
		t.Errorf("the queue accepted %d messages, want each of %d once", n, rows)
	}
}

// HTTP-05: the server closes a connection just as it is used again. The
// transport repeats the request by itself, because it has the key and the bytes.
func TestPublish_SurvivesStaleConnections(t *testing.T) {
	t.Parallel()
	tests := map[string]func(net.Conn){
		"closed while idle":            func(net.Conn) {},
		"closed at the next request":   func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) },
		"reset at the next request":    func(c net.Conn) { _, _ = c.Read(make([]byte, 1)); _ = c.(*net.TCPConn).SetLinger(0) },
		"closed after a whole request": func(c net.Conn) { _, _ = readRequest(c) },
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var bodies sync.Map
			base := listen(t, func(c net.Conn) {
				body, err := readRequest(c)
				if err != nil {
					return
				}
				bodies.Store(body, true)
				_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(accepted), accepted)
				end(c)
			})
			p := newPublisher(t, settings(base))
			for i := range 20 {
				row := message(fmt.Sprint("k", i))
				if _, err := p.Publish(t.Context(), row); err != nil {
					t.Errorf("row %d: %v", i, err)
				}
				body, _ := infrai.AppendBody(nil, row)
				if _, arrived := bodies.Load(string(body)); !arrived {
					t.Errorf("row %d did not arrive whole", i)
				}
			}
		})
	}
}

// HTTP-06: a server that is slow in every way it can be. Each attempt ends at
// the timeout, and other messages are not affected.
func TestPublish_EndsAtTheTimeout(t *testing.T) {
	t.Parallel()
	drip := func(head string) func(net.Conn) {
		return func(c net.Conn) {
			if _, err := readRequest(c); err != nil {
				return
			}
			_, err := c.Write([]byte(head))
			for err == nil {
				_, err = c.Write([]byte("x"))
				<-time.After(20 * time.Millisecond)
			}
		}
	}
	silent := func(c net.Conn) { _, _ = readRequest(c); _, _ = c.Read(make([]byte, 1)) }
	var deaf func(net.Conn) // made below, since it lasts as long as its test
	tests := map[string]struct {
		serve func(net.Conn)
		size  int
	}{
		"accepts and says nothing":    {silent, 10},
		"drips the header":            {drip("HTTP/1.1 200 OK\r\nX-Slow: "), 10},
		"drips the answer for ever":   {drip("HTTP/1.1 200 OK\r\n\r\n"), 10},
		"drips the rest of an answer": {drip("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + `{"ok":true,`), 10},
		"does not read the request":   {deaf, 20 << 20},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.serve == nil {
				test.serve = func(net.Conn) { <-t.Context().Done() }
			}
			cfg := settings(listen(t, test.serve))
			cfg.RequestTimeout, cfg.MaxBodyBytes = 300*time.Millisecond, 64<<20
			p := newPublisher(t, cfg)
			row := message("k")
			row.Payload = `{"x": "` + strings.Repeat("x", test.size) + `"}`

			began := time.Now()
			_, err := p.Publish(t.Context(), row)
			got := refusal(t, err)
			if got.Class != relay.UnknownOutcome || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want an unknown outcome by a deadline", err)
			}
			if took := time.Since(began); took < cfg.RequestTimeout || took > time.Minute {
				t.Errorf("it took %s, want about %s", took, cfg.RequestTimeout)
			}
		})
	}
}

// A stop is an unknown outcome too, and can be told from a timeout.
func TestPublish_EndsWithTheContext(t *testing.T) {
	t.Parallel()
	queue, base := newEmulator(t)
	script(t, queue, emulator.Fault{Store: true, Hang: true})
	p := newPublisher(t, settings(base))

	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_ = queue.Journal().Wait(ctx, 0)
		cancel()
	}()
	_, err := p.Publish(ctx, message("k1"))
	if got := refusal(t, err); got.Class != relay.UnknownOutcome || !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want an unknown outcome by cancellation", err)
	}

	_, err = p.Publish(ctx, message("k2"))
	if got := refusal(t, err); got.Class != relay.Transient || !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want a transient error by cancellation", err)
	}
	if n := queue.Journal().Last(); n != 1 {
		t.Errorf("%d requests, want none with a context that has ended", n-1)
	}
}

// What never left cannot have been accepted: no outcome is unknown then.
func TestPublish_KnowsWhenNothingWasSent(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = zap.NewStdLog(zap.NewNop()) // it complains about us
	secure.StartTLS()
	t.Cleanup(secure.Close)

	for name, base := range map[string]string{
		"nobody listens":          "http://127.0.0.1:1", // a port that nobody gets by chance
		"certificate of another":  strings.Replace(secure.URL, "127.0.0.1", "localhost", 1),
		"no TLS where it is said": strings.Replace(plain.URL, "http:", "https:", 1),
	} {
		_, err := newPublisher(t, settings(base)).Publish(t.Context(), message("k"))
		if got := refusal(t, err); got.Class != relay.Transient {
			t.Errorf("%s: %v, want it transient", name, err)
		}
	}
}

// HTTP-09: a redirect is not followed, and pauses everything: the target would
// get the key, and a GET would look like a delivery.
func TestPublish_FollowsNoRedirect(t *testing.T) {
	t.Parallel()
	var visits atomic.Int64
	elsewhere := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		visits.Add(1)
		_, _ = w.Write([]byte(accepted))
	})
	host := strings.TrimPrefix(elsewhere, "http://")
	for _, status := range []int{301, 302, 303, 307, 308} {
		p := newPublisher(t, settings(answering(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", elsewhere+"/path?token=secret-1")
			w.WriteHeader(status)
		})))
		_, err := p.Publish(t.Context(), message("k"))
		got := refusal(t, err)
		if got.Class != relay.EndpointClosed || got.Status != status {
			t.Errorf("%d: class %s, status %d, want endpoint closed", status, got.Class, got.Status)
		}
		if want := "redirects are not followed: this one leads to " + host; got.Message != want {
			t.Errorf("%d: message %q, want %q", status, got.Message, want)
		}
	}
	if n := visits.Load(); n != 0 {
		t.Errorf("%d requests arrived at the target, want 0", n)
	}
}
