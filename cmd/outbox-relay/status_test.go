package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// watcher is `status --watch` beside the test, which reads its lines.
type watcher struct {
	lines *bufio.Scanner
	err   strings.Builder
	stop  context.CancelFunc
	ended chan error
}

func watch(t *testing.T, environment settings, args ...string) *watcher {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	w := &watcher{lines: bufio.NewScanner(reader), stop: stop, ended: make(chan error, 1)}
	go func() {
		w.ended <- run(ctx, append([]string{"status", "--watch"}, args...), environment.environ(), streams{out: writer, err: &w.err})
		_ = writer.Close()
	}()
	t.Cleanup(func() {
		stop()
		_ = reader.Close()
	})
	return w
}

// line is the next line that is written.
func (w *watcher) line(t *testing.T) string {
	t.Helper()
	if !w.lines.Scan() {
		t.Fatalf("the output ended: %v", <-w.ended)
	}
	return w.lines.Text()
}

// end stops the watch, which must be no error. A look that is under way is shown
// before that, and waits for a reader.
func (w *watcher) end(t *testing.T) {
	t.Helper()
	w.stop()
	for w.lines.Scan() {
	}
	if err := <-w.ended; err != nil {
		t.Errorf("the watch ended with %v", err)
	}
}

func TestStatus_Watch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := watch(t, r.settings)
	if line := w.line(t); !strings.HasSuffix(line, "Z no relay has run yet, no message without outcome") {
		t.Errorf("the first line is %q", line)
	}
	r.insert(t, "a")
	line := w.line(t)
	if strings.HasSuffix(line, "no message without outcome") {
		line = w.line(t) // that look was before the insert, and waited for a reader
	}
	if !strings.Contains(line, "1 waiting (oldest ") {
		t.Errorf("the second line is %q", line)
	}
	w.end(t)
}

func TestStatus_WatchJSON(t *testing.T) {
	t.Parallel()
	w := watch(t, newRig(t).settings, "--json")
	for range 2 {
		var report status.Report
		if err := json.Unmarshal([]byte(w.line(t)), &report); err != nil || report.SchemaVersion != 1 {
			t.Errorf("a line is %+v, %v", report, err)
		}
	}
	w.end(t)
}

// A watch outlives the server, and does not begin without one.
func TestStatus_WatchOutlivesTheServer(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	r := rigOn(t, cluster.Migrated(t))
	w := watch(t, r.settings)
	w.line(t)
	if err := cluster.Restart("immediate"); err != nil {
		t.Fatal(err)
	}
	if line := w.line(t); !strings.Contains(line, "no relay has run yet") {
		t.Errorf("after a restart the line is %q", line)
	}
	w.end(t)
	if err := cluster.Stop("immediate"); err != nil {
		t.Fatal(err)
	}
	expectCode(t, r.settings, exitUnexpected, []string{"status", "--watch"}, "connect")
}

// Why messages are deferred stands where a person looks first.
func TestStatus_SaysWhyMessagesAreDeferred(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	fill(t, r)
	expectCode(t, r.settings, exitStopped, []string{"status"}, "4 deferred (2 scheduled, 1 held, 1 transient)",
		"first: message 4", "3 dead letters")
}

// Where a relay has paused sending stands there, too, if it runs here.
func TestStatus_SaysWhereSendingIsPaused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if _, err := r.queue.AddFault(emulator.Fault{Route: "queue.publish", Status: 401}); err != nil {
		t.Fatal(err)
	}
	runs := start(t, r.settings, "run")
	asked := r.with("RELAY_ADMIN_LISTEN", adminOf(t, runs))
	runs.AwaitMessage(t, "session began")
	awaitStatus(t, asked, []string{"--json"}, `"breakers": []`)
	r.insert(t, "a")
	runs.AwaitMessage(t, "sending paused")
	awaitStatus(t, asked, nil, "sending paused to all queues (endpoint_closed)", "next probe in")
	for why, another := range map[string]settings{"nobody can be asked there": r.settings, "one of slot ": asked.with("RELAY_SLOT", "another")} {
		if got := awaitStatus(t, another, nil, why); strings.Contains(got.out, "paused") {
			t.Errorf("without asking, or of another relay:\n%s", got.out)
		}
	}
}

// awaitStatus waits until status writes these texts. It gives a relay two seconds to
// answer, which a busy machine may need.
func awaitStatus(t *testing.T, environment settings, args []string, texts ...string) (got result) {
	t.Helper()
	pgtest.Eventually(t, patience, func() error {
		got = expectCode(t, environment, exitStopped, append([]string{"status"}, args...))
		for _, text := range texts {
			if !strings.Contains(got.out, text) {
				return fmt.Errorf("no %q in\n%s", text, got.out)
			}
		}
		return nil
	})
	return got
}

// Why the relay could not be asked stands in the table and in the document: what
// only it knows is missing there.
func TestStatus_SaysWhyTheRelayWasNotAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const free = "127.0.0.1:1"
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // takes connections, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	another := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(another.Close)
	for why, address := range map[string]string{
		"the relay at " + free + " could not be asked: dial tcp " + free + ": connect: connection refused":                                     free,
		"the relay at " + silent.Addr().String() + " could not be asked: no answer within 2s":                                                  silent.Addr().String(),
		"the relay at " + another.Listener.Addr().String() + " could not be asked: something else than a relay answers there, with status 404": another.Listener.Addr().String(),
		"no relay was asked: RELAY_ADMIN_LISTEN is off: nobody can be asked there":                                                             "off",
	} {
		asks := r.with("RELAY_ADMIN_LISTEN", address)
		awaitStatus(t, asks, nil, "\nrelay ", why+"\n")
		got := awaitStatus(t, asks, []string{"--json"}, `"relay_error": "`+why+`"`)
		var report status.Report
		if err := json.Unmarshal([]byte(got.out), &report); err != nil || report.RelayError != why || report.Breakers != nil || report.Unseen != nil {
			t.Errorf("%v: the document has %q, %v, %v", err, report.RelayError, report.Breakers, report.Unseen)
		}
	}
}
