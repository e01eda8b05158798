package cdc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// refused opens a Source that cannot be opened, and returns what an operator
// reads.
func (r *rig) refused(s *cdc.Source, kind error) (message, hint string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	err := s.Open(ctx)
	var operator *cdc.OperatorError
	if !errors.Is(err, kind) || !errors.As(err, &operator) {
		r.t.Fatalf("open: %v, want %v", err, kind)
	}
	return err.Error(), operator.Hint()
}

// wants fails the test unless the text has all of these.
func wantText(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
}

// OPS-01: wal_level is not logical.
func TestSource_Open_NeedsLogicalWAL(t *testing.T) {
	t.Parallel()
	r := rigOn(t, pgtest.New(t, pgtest.Options{Settings: map[string]string{"wal_level": "replica", "max_replication_slots": "1"}}))
	message, hint := r.refused(r.source(), cdc.ErrServer)
	wantText(t, message, `wal_level is "replica"`, `needs "logical"`)
	wantText(t, hint, "restart")
}

// OPS-02: all slots are in use. It passes when one is freed.
func TestSource_Open_WaitsForAFreeSlot(t *testing.T) {
	t.Parallel()
	r := rigOn(t, pgtest.New(t, pgtest.Options{Settings: map[string]string{"max_replication_slots": "1"}}))
	r.exec("select pg_create_logical_replication_slot('somebody_elses', 'pgoutput')")
	s := r.source()
	opened := make(chan error, 1)
	go func() { opened <- s.Open(t.Context()) }()
	r.eventually("the problem is known", func() bool { return s.Problem() != nil && strings.Contains(s.Problem().Error(), "53400") })
	wantText(t, s.Problem().Error(), "1 of 1 slots (max_replication_slots) are used, by somebody_elses")
	r.exec("select pg_drop_replication_slot('somebody_elses')")
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
}

// OPS-03: what rights it takes. The server's hba file trusts everybody.
func TestSource_Open_Rights(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	role := r.config.Slot // roles are of the cluster; the name is free
	as := func(r *rig) string { return strings.Replace(r.url, "postgres@", role+"@", 1) }
	r.exec("create role " + role + " login")
	r.atEnd("drop owned by " + role + "; drop role " + role)

	message, hint := r.refused(r.sourceTo(r.url, as(r)), cdc.ErrPrivilege)
	wantText(t, message, "42501", role)
	wantText(t, hint, "alter role", "replication", "rds_replication")

	r.exec("alter role " + role + " replication")
	s := r.sourceTo(as(r), as(r))
	r.open(s)
	c := r.consume(s, nil)
	r.insert("a")
	c.wants("a")
	r.close(s)

	// Row security does not hide WAL, but it would hide what the relay reads.
	r.exec("alter table outbox.messages enable row level security")
	message, hint = r.refused(r.sourceTo(as(r), as(r)), cdc.ErrTable)
	wantText(t, message, "row security", role)
	wantText(t, hint, "disable row level security")
}

// OPS-04: a pooler that refuses the parameter, and one that drops it.
func TestSource_Open_RecognizesAPooler(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, answer := range map[string]replicationAnswer{
		"refuses": func(b *pgproto3.Backend, _ *pgproto3.StartupMessage) bool {
			b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: replication"})
			_ = b.Flush()
			return false
		},
		"drops": func(_ *pgproto3.Backend, m *pgproto3.StartupMessage) bool {
			delete(m.Parameters, "replication")
			delete(m.Parameters, "wal_sender_timeout")
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, hint := r.refused(r.sourceTo(r.url, r.throughPooler(answer)), cdc.ErrPooler)
			wantText(t, hint, "pooler", "direct address")
		})
	}
}

// The replication connection leads somewhere else than the SQL connections.
func TestSource_Open_NeedsTheStreamOfTheSameServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := newRig(t)
	url := r.throughPooler(func(_ *pgproto3.Backend, m *pgproto3.StartupMessage) bool {
		m.Parameters["database"] = other.parse(other.url).Database
		return true
	})
	s := r.sourceTo(r.url, url)
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error, 1)
	go func() { opened <- s.Open(ctx) }()
	r.eventually("the problem is known", func() bool {
		return s.Problem() != nil && strings.Contains(s.Problem().Error(), "lead to different servers")
	})
	cancel()
	if err := <-opened; !errors.Is(err, context.Canceled) {
		t.Errorf("Open ended with %v", err)
	}
	if got := value[int](r, "select count(*) from pg_replication_slots where slot_name = $1", r.config.Slot); got != 0 {
		t.Error("a slot was made")
	}
}

// replicationAnswer deals with the startup message of a replication connection,
// and reports whether the connection goes on to the server, with the message as
// it is then.
type replicationAnswer func(*pgproto3.Backend, *pgproto3.StartupMessage) bool

// throughPooler is the rig's URL by way of something that passes ordinary
// sessions on and has its own mind about those for replication.
func (r *rig) throughPooler(answer replicationAnswer) string {
	r.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(r.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	server := fmt.Sprintf("127.0.0.1:%d", r.parse(r.url).Port)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() {
				defer conn.Close()
				if err := pool(conn, server, answer); err != nil {
					r.t.Logf("pooler: %v", err)
				}
			})
		}
	})
	r.t.Cleanup(func() {
		listener.Close()
		tasks.Wait()
	})
	return strings.Replace(r.url, server, listener.Addr().String(), 1)
}

// pool serves one connection to its end.
func pool(client net.Conn, address string, answer replicationAnswer) error {
	backend := pgproto3.NewBackend(client, client)
	message, err := backend.ReceiveStartupMessage()
	if _, ok := message.(*pgproto3.SSLRequest); ok {
		if _, err := client.Write([]byte{'N'}); err != nil {
			return err
		}
		message, err = backend.ReceiveStartupMessage()
	}
	if err != nil {
		return err
	}
	startup, ok := message.(*pgproto3.StartupMessage)
	if !ok {
		return nil // a cancel request
	}
	if startup.Parameters["replication"] != "" && !answer(backend, startup) {
		return nil
	}
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	defer server.Close()
	packet, err := startup.Encode(nil)
	if err != nil {
		return err
	}
	if _, err := server.Write(packet); err != nil {
		return err
	}
	var ways sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		ways.Go(func() {
			defer way[0].Close()
			defer way[1].Close()
			_, _ = io.Copy(way[0], way[1]) // ends when either side does
		})
	}
	ways.Wait()
	return nil
}

// OPS-05: the slot is there, but for something else.
func TestSource_Open_DoesNotTouchAForeignSlot(t *testing.T) {
	t.Parallel()
	other := newRig(t)
	for name, test := range map[string]struct {
		make func(r *rig)
		want string
	}{
		"another database": {func(r *rig) {
			other.exec("select pg_create_logical_replication_slot($1, 'pgoutput')", r.config.Slot)
		}, "belongs to database"},
		"another plugin": {func(r *rig) {
			r.exec("select pg_create_logical_replication_slot($1, 'test_decoding')", r.config.Slot)
		}, "test_decoding"},
		"physical": {func(r *rig) {
			r.exec("select pg_create_physical_replication_slot($1)", r.config.Slot)
			r.atEnd("select pg_drop_replication_slot('" + r.config.Slot + "')")
		}, "is a physical slot"},
		"temporary": {func(r *rig) {
			r.exec("select pg_create_logical_replication_slot($1, 'pgoutput', true)", r.config.Slot)
		}, "is temporary"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			test.make(r)
			message, hint := r.refused(r.source(), cdc.ErrSlotForeign)
			wantText(t, message, test.want, r.config.Slot)
			wantText(t, hint, "does not touch it")
			if got := value[int](r, "select count(*) from pg_replication_slots where slot_name = $1", r.config.Slot); got != 1 {
				t.Errorf("%d slots of this name, want the foreign one", got)
			}
		})
	}
}

// OPS-08: two relays, one slot.
func TestSource_TheSecondStandsByAndTakesOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first, second := r.source(), r.source()
	r.open(first)
	c := r.consume(first, nil)
	r.insert("a")
	c.wants("a")

	opened := make(chan error, 1)
	go func() { opened <- second.Open(t.Context()) }()
	r.eventually("the second stands by", func() bool { return second.State() == cdc.Standby })
	if second.Problem() != nil {
		t.Errorf("a standby has a problem: %v", second.Problem())
	}
	r.insert("b")
	c.wants("a", "b")
	r.awaitRead(first, 2)

	begun := time.Now()
	r.close(first)
	if err := r.opened(opened); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 15*time.Second { // no timeout came to its aid
		t.Errorf("taken over after %v", took)
	}
	again := r.consume(second, nil)
	r.insert("c")
	again.wants("c") // the first has confirmed all that it resolved
	if second.Created() {
		t.Error("Created says that the second made the slot")
	}
}

// OPS-08: several start at the same moment, on a server without the slot.
func TestSource_ManyStartAtTheSameMoment(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const relays = 4
	opened := make(chan *cdc.Source, relays)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{}, relays)
	for range relays {
		s := r.source()
		go func() {
			defer func() { ended <- struct{}{} }()
			if err := s.Open(ctx); err == nil {
				opened <- s
			}
		}()
	}
	created := 0
	for range relays {
		s := <-opened
		select {
		case <-opened:
			t.Fatal("two relays have the slot")
		case <-time.After(100 * time.Millisecond):
		}
		if s.Created() {
			created++
		}
		c := r.consume(s, nil)
		key := fmt.Sprint("for relay ", created, len(r.logged("slot acquired")))
		r.insert(key)
		c.has(key)
		r.close(s)
	}
	if created != 1 {
		t.Errorf("%d relays say that they made the slot, want 1", created)
	}
	for range relays {
		<-ended
	}
}

// The making of a slot waits for open transactions; it says for which, and ends
// when it is asked to.
func TestSource_Open_SaysWhatTheSlotWaitsFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	writer := r.connect()
	if _, err := writer.Exec(t.Context(), "begin; select pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	s := r.source(func(c *cdc.Config) { c.SlotTimeout = 300 * time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error, 1)
	go func() { opened <- s.Open(ctx) }()
	waits := func() bool { return len(r.logged("slot creation waits for an open transaction")) > 0 }
	r.eventually("the log says what the slot waits for", waits)
	line := text(r.logged("slot creation waits for an open transaction")[0])
	wantText(t, line, "transaction:", "since:")

	cancel()
	if err := r.opened(opened); !errors.Is(err, context.Canceled) {
		t.Errorf("Open ended with %v", err)
	}
	r.eventually("no slot is left", func() bool {
		return value[int](r, "select count(*) from pg_replication_slots where slot_name = $1", r.config.Slot) == 0
	})

	if _, err := writer.Exec(t.Context(), "commit"); err != nil {
		t.Fatal(err)
	}
	r.open(s)
	if !s.Created() {
		t.Error("Created does not tell of the slot")
	}
}

// OUT-09: the relay's SQL must be able to write, and reach the same server.
func TestSource_Open_WaitsForTheRightServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := newRig(t)
	database := r.parse(r.url).Database
	for name, test := range map[string]struct {
		source *cdc.Source
		cause  func()
		want   string
	}{
		"read-only": {r.source(), func() {
			r.exec("alter database " + database + " set default_transaction_read_only = on")
		}, "session is read-only"},
		"another database": {r.sourceTo(other.url, r.url), func() {}, "lead to different servers"},
	} {
		t.Run(name, func(t *testing.T) {
			test.cause()
			ctx, cancel := context.WithCancel(t.Context())
			opened := make(chan error, 1)
			go func() { opened <- test.source.Open(ctx) }()
			r.eventually("the problem is known", func() bool {
				return test.source.Problem() != nil && strings.Contains(test.source.Problem().Error(), test.want)
			})
			cancel()
			if err := <-opened; !errors.Is(err, context.Canceled) {
				t.Errorf("Open ended with %v", err)
			}
			r.exec("set default_transaction_read_only = off")
			r.exec("alter database " + database + " reset default_transaction_read_only")
		})
	}
	r.open(r.source())
}

// The server cannot be reached; then it can.
func TestSource_Open_WaitsForTheServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.proxy()
	p.Refuse(true)
	s := r.via(p)
	opened := make(chan error, 1)
	go func() { opened <- s.Open(t.Context()) }()
	r.eventually("the problem is known", func() bool { return s.Problem() != nil })
	p.Refuse(false)
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	lines := r.logged("stream cannot be opened, will be tried again")
	if len(lines) == 0 || len(lines) > 3 {
		t.Errorf("%d lines about it, want one for each change of the trouble: %v", len(lines), lines)
	}
}

// SEC-01: a password is nowhere to be read.
func TestSource_KeepsThePassword(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const password = "S3cr1tzz"
	p := r.proxy()
	p.Refuse(true)
	url := strings.Replace(r.through(p), "postgres@", "postgres:"+password+"@", 1)
	s := r.sourceTo(url, url)
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error, 1)
	go func() { opened <- s.Open(ctx) }()
	r.eventually("the problem is known", func() bool { return s.Problem() != nil })
	cancel()
	if err := <-opened; !errors.Is(err, context.Canceled) {
		t.Errorf("Open ended with %v", err)
	}
	all := fmt.Sprintf("%v %+v %#v", s.Problem(), s.Problem(), s.Problem().Error())
	for _, line := range r.lines.All() {
		all += text(line)
	}
	if strings.Contains(all, password) {
		t.Error("the password is in an error or in the log")
	}
	if strings.Contains(s.Problem().Error(), "\n") {
		t.Errorf("the error has several lines: %s", s.Problem())
	}
}
