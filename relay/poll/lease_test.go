package poll_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-relay/outbox-relay/internal/netfault"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/relay/poll"
)

// opening is an Open that waits.
type opening struct {
	stop  context.CancelFunc
	ended chan error
}

func (r *rig) opening(s *poll.Source) *opening {
	ctx, stop := context.WithTimeout(context.Background(), waitLimit)
	r.t.Cleanup(stop)
	o := &opening{stop, make(chan error, 1)}
	go func() { o.ended <- s.Open(ctx) }()
	return o
}

func (r *rig) opened(o *opening) {
	r.t.Helper()
	if err := <-o.ended; err != nil {
		r.t.Fatalf("open: %v", err)
	}
}

const standingBy = "another relay is at work, standing by"

// holder is the pid of the session that has the lock, as the status finds it.
func (r *rig) holder() (pid int64) {
	r.t.Helper()
	if err := r.conn.QueryRow(context.Background(), poll.HolderSQL, r.config.Slot).Scan(&pid); err != nil {
		r.t.Fatalf("holder: %v", err)
	}
	return pid
}

func TestSource_Open_WaitsForTheOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config.LeaseTimeout = time.Hour // longer than anybody waits here
	r.insert(r.conn, "m", "a")
	first := r.read()
	first.await(1)
	pid := r.holder()
	second := r.source()
	waiting := r.opening(second)
	line := r.awaitLog(standingBy)
	if got := line.ContextMap()["holder_pid"]; got != pid {
		t.Errorf("the log names pid %v, want %d", got, pid)
	}
	r.close(first.source)
	r.opened(waiting) // usually after 50 ms
	next := &reading{rig: r, source: second}
	next.await(1)
}

// A server that ends the session has let the lock go: the next one gets it.
func TestSource_Next_EndsWithItsConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.read()
	second := r.source()
	waiting := r.opening(second)
	r.awaitLog(standingBy)
	r.exec(`select pg_terminate_backend($1)`, r.holder())
	if _, err := first.source.Next(t.Context()); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("next: %v", err)
	}
	r.opened(waiting)
	r.close(first.source)
}

// A stop ends the wait for the lock.
func TestSource_Open_StopsWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.read()
	waiting := r.opening(r.source())
	r.awaitLog(standingBy)
	waiting.stop()
	if err := <-waiting.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("open: %v", err)
	}
}

// through returns the rig's URL by way of another address.
func (r *rig) through(address string) string {
	r.t.Helper()
	u, err := url.Parse(r.url)
	if err != nil {
		r.t.Fatal(err)
	}
	u.Host = address
	return u.String()
}

// A relay that is frozen, or cut off without a word, loses the lock when the
// lease ends, and not before its last word is that old.
func TestSource_LeaseEndsInSilence(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config.LeaseTimeout = 8 * time.Second
	proxy, err := netfault.New(parse(t, r.url).Host + ":" + fmt.Sprint(parse(t, r.url).Port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	first := r.sourceTo(r.url, r.through(proxy.Addr()))
	r.open(first)
	second := r.source()
	waiting := r.opening(second)
	r.awaitLog(standingBy)
	proxy.Freeze()
	r.opened(waiting)
	if age := time.Since(first.LastWord()); age < r.config.LeaseTimeout {
		t.Errorf("the lock was given on while the last word was %v old", age)
	}
	proxy.Thaw()
	if _, err := first.Next(t.Context()); err == nil {
		t.Error("the session goes on without the lock")
	}
}

// The last word stays fresh while nobody takes messages.
func TestSource_LastWord(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(`insert into outbox.messages (key, queue, payload) select 'm' || i, 'orders', '{}' from generate_series(1, 2000) i`)
	s := r.read()
	s.await(500)
	began := time.Now()
	r.awaitWord(s.source, began.Add(2*time.Second)) // without anybody calling Next
	if s.source.LastWord().After(time.Now()) {
		t.Error("the last word is in the future")
	}
}

func (r *rig) awaitWord(s *poll.Source, after time.Time) {
	r.t.Helper()
	r.eventually(func() error {
		if word := s.LastWord(); !word.After(after) {
			return fmt.Errorf("the last word is of %v", word)
		}
		return nil
	})
}

// pooled is something like a connection pooler before the rig's server: what it
// tells about itself at the start of a session is its own.
func (r *rig) pooled(refuse bool) string {
	r.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(r.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	config := parse(r.t, r.url)
	server := net.JoinHostPort(config.Host, fmt.Sprint(config.Port))
	var sessions sync.WaitGroup
	sessions.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			sessions.Go(func() {
				defer client.Close()
				pool(client, server, refuse)
			})
		}
	})
	r.t.Cleanup(func() {
		_ = listener.Close()
		sessions.Wait()
	})
	return r.through(listener.Addr().String())
}

// pool serves one session.
func pool(client net.Conn, address string, refuse bool) {
	backend := pgproto3.NewBackend(client, client)
	message, err := backend.ReceiveStartupMessage()
	if err != nil {
		return
	}
	startup, ok := message.(*pgproto3.StartupMessage)
	if !ok {
		return // a cancel request
	}
	if refuse {
		backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: idle_session_timeout"})
		_ = backend.Flush()
		return
	}
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	frontend := pgproto3.NewFrontend(server, server)
	frontend.Send(startup)
	if frontend.Flush() != nil {
		return
	}
	for ready := false; !ready; {
		answer, err := frontend.Receive()
		if err != nil {
			return
		}
		if key, ok := answer.(*pgproto3.BackendKeyData); ok {
			key.ProcessID = 4711
			key.SecretKey = binary.BigEndian.AppendUint32(nil, 42)
		}
		_, ready = answer.(*pgproto3.ReadyForQuery)
		backend.Send(answer)
	}
	if backend.Flush() != nil {
		return
	}
	var upstream sync.WaitGroup
	upstream.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	_, _ = io.Copy(client, server)
	_ = client.Close()
	upstream.Wait()
}

// OPS-04: through a connection pooler the lock would belong to whoever gets the
// backend next.
func TestSource_Open_RefusesAPooler(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, refuse := range map[string]bool{"that refuses settings": true, "that ignores them": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, hint := r.refused(r.sourceTo(r.url, r.pooled(refuse)))
			wantText(t, text, "connection pooler")
			wantText(t, hint, "RELAY_REPLICATION_URL", "direct address")
		})
	}
	t.Run("for the relay's own statements", func(t *testing.T) {
		t.Parallel()
		r.open(r.sourceTo(r.pooled(false), r.url))
	})
}

// Outcomes must be recorded where the messages are.
func TestSource_Open_NeedsOneServer(t *testing.T) {
	t.Parallel()
	r, other := newRig(t), newRig(t)
	waiting := r.opening(r.sourceTo(other.url, r.url))
	line := r.awaitLog("table cannot be polled, will be tried again")
	wantText(t, fmt.Sprint(line.ContextMap()["error"]), "different servers", parse(t, other.url).Database)
	waiting.stop()
	if err := <-waiting.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("open: %v", err)
	}
}

// Of several hosts the one is taken that takes writes.
func TestSource_Open_SeveralHosts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := pgtest.New(t, pgtest.Options{Settings: map[string]string{"default_transaction_read_only": "on"}})
	config := parse(t, r.url)
	hosts := fmt.Sprintf("postgres://%s@127.0.0.1:%d,127.0.0.1:%d/%s?sslmode=disable", config.User, other.Port(), config.Port, config.Database)
	conn, err := pgx.Connect(t.Context(), other.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	r.execOn(conn, `set default_transaction_read_only = off`)
	r.execOn(conn, `create database `+pgx.Identifier{config.Database}.Sanitize())
	r.open(r.sourceTo(hosts, hosts))
	if pid := r.holder(); pid == 0 {
		t.Error("nobody has the lock")
	}
}

func TestSource_Open_WhatOnlyAPersonCanCure(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ sql, text, hint string }{
		"numbers kept for later": {
			`alter sequence outbox.messages_id_seq cache 10`,
			"outbox.messages_id_seq has a cache of 10", "alter sequence outbox.messages_id_seq cache 1",
		},
		"numbers of no sequence": {`alter table outbox.messages alter column id drop identity`, "no sequence", "identity"},
		"no table":               {`alter table outbox.messages rename to gone`, "does not exist", "migrate up"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.exec(test.sql)
			text, hint := r.refused(r.source())
			wantText(t, text, test.text)
			wantText(t, hint, test.hint)
		})
	}
}

// A process that had a session waits for the cure, which needs no restart.
func TestSource_Open_WaitsForTheCure(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.read()
	r.exec(`alter sequence outbox.messages_id_seq cache 10`)
	if _, err := s.source.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "cache") {
		t.Fatalf("next: %v", err)
	}
	waiting := r.opening(s.source)
	line := r.awaitLog("table cannot be polled, will be tried again")
	wantText(t, fmt.Sprint(line.ContextMap()["hint"]), "cache 1")
	r.exec(`alter sequence outbox.messages_id_seq cache 1`)
	r.opened(waiting)
}

// A slot of before keeps WAL for nobody.
func TestSource_Open_NamesASlotThatNobodyReads(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(`select pg_create_physical_replication_slot($1, true)`, r.config.Slot)
	r.open(r.source())
	line := r.awaitLog("a slot of this name keeps WAL that nobody reads in poll mode")
	wantText(t, fmt.Sprint(line.ContextMap()["hint"]), "pg_drop_replication_slot('"+r.config.Slot+"')")
	r.exec(`select pg_drop_replication_slot($1)`, r.config.Slot)
}

// What the relay says of the server decides.
func TestSource_Open_AsksBeforeItTakes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.source()
	asked := make(chan string)
	answer := make(chan error)
	s.BeforeTake(func(_ context.Context, system string, timeline int32) error {
		asked <- fmt.Sprint(system, " ", timeline)
		return <-answer
	})
	announced := false
	s.BeforeCreate(nil, func(context.Context) error {
		announced = true
		return nil
	})
	waiting := r.opening(s)
	want := fmt.Sprint(r.count(`select system_identifier from pg_control_system()`), " 1")
	if got := <-asked; got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
	answer <- errors.New("not here")
	<-asked
	if n := r.count(`select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())`); n != 0 {
		t.Error("the lock is taken")
	}
	answer <- nil
	r.opened(waiting)
	if !announced {
		t.Error("it is not on record that the table is polled")
	}
}
