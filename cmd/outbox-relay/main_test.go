package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

func TestMain(m *testing.M) { pgtest.Main(m, func() error { return goleak.Find() }) }

// settings is the environment of a program.
type settings map[string]string

// environ lets the admin server take a free port: many relays run side by side.
func (s settings) environ() []string {
	var environ []string
	if s["RELAY_ADMIN_LISTEN"] == "" {
		environ = append(environ, "RELAY_ADMIN_LISTEN=127.0.0.1:0")
	}
	for name, value := range s {
		environ = append(environ, name+"="+value)
	}
	return environ
}

// with returns a copy with more settings: names and values in turn.
func (s settings) with(more ...string) settings {
	all := settings{}
	maps.Copy(all, s)
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

// result is what a verb left behind.
type result struct {
	code     int
	out, err string
}

// execute runs a verb to its end.
func execute(t *testing.T, environment settings, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), args, environment.environ(), streams{in: strings.NewReader(""), out: &stdout, err: &stderr})
	report(&stderr, err)
	return result{code: exitCode(err), out: stdout.String(), err: stderr.String()}
}

// expectCode runs a verb and looks at its exit code and, on whichever stream,
// at texts that it must write.
func expectCode(t *testing.T, environment settings, code int, args []string, texts ...string) result {
	t.Helper()
	r := execute(t, environment, args...)
	if r.code != code {
		t.Fatalf("%v: exit code is %d, want %d\n%s%s", args, r.code, code, r.out, r.err)
	}
	for _, text := range texts {
		if !strings.Contains(r.out+r.err, text) {
			t.Errorf("%v does not write %q:\n%s%s", args, text, r.out, r.err)
		}
	}
	return r
}

// daemon is a verb that runs beside the test.
type daemon struct {
	relaybin.Log
	stop context.CancelCauseFunc
	done chan struct{}
	code int // read after done
}

var errStop = errors.New("the test stops it")

// start starts a verb; it is stopped at the test's end.
func start(t *testing.T, environment settings, args ...string) *daemon {
	t.Helper()
	ctx, stop := context.WithCancelCause(context.WithoutCancel(t.Context()))
	d := &daemon{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(d.done)
		err := run(ctx, args, environment.environ(), streams{in: strings.NewReader(""), out: io.Discard, err: d})
		report(d, err)
		d.code = exitCode(err)
		d.End()
	}()
	t.Cleanup(func() {
		stop(errStop)
		<-d.done
		if t.Failed() {
			t.Logf("%v wrote:\n%s", args, d.Text())
		}
	})
	return d
}

// end stops the verb and returns its exit code.
func (d *daemon) end() int {
	d.stop(errStop)
	<-d.done
	return d.code
}

const (
	apiKey = "ifr_key_of_the_test"
)

// rig is a migrated database and an emulated queue, with the settings that join
// them.
type rig struct {
	settings
	url   string
	queue *emulator.Server
}

// newRig makes the rig on the shared server.
func newRig(t *testing.T) *rig {
	t.Helper()
	return rigOn(t, pgtest.Migrated(t))
}

// rigOn makes the rig around a database. The slot is named after the database,
// because slots belong to the whole server.
func rigOn(t *testing.T, url string) *rig {
	t.Helper()
	queue := emulator.New(emulator.Config{APIKey: apiKey, Queues: []string{"orders"}})
	web := httptest.NewServer(queue)
	t.Cleanup(func() {
		queue.Close()
		web.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{url: url, queue: queue, settings: settings{
		"DATABASE_URL": url, "INFRAI_API_KEY": apiKey, "INFRAI_BASE_URL": web.URL, "RELAY_SLOT": "slot_" + config.Database,
	}}
}

// insert writes a message.
func (r *rig) insert(t *testing.T, key string) {
	t.Helper()
	sql(t, r.url, "insert into outbox.messages (key, queue, payload) values ('"+key+"', 'orders', '{\"total\": 12.50}')")
}

// awaitAccepted waits until the queue has accepted these keys, in this order
// and nothing else.
func (r *rig) awaitAccepted(t *testing.T, keys ...string) {
	t.Helper()
	want := strings.Join(keys, " ")
	pgtest.Eventually(t, patience, func() error {
		var got []string
		for _, m := range r.queue.Accepted("orders") {
			got = append(got, m.Key)
		}
		if strings.Join(got, " ") != want {
			return errors.New("accepted are: " + strings.Join(got, " "))
		}
		return nil
	})
}

// sql runs statements as superuser.
func sql(t *testing.T, url string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, statement := range statements {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func query[T any](t *testing.T, url, statement string, args ...any) (value T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(t.Context(), statement, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return value
}
