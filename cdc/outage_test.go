package cdc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap/zapcore"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// reader is a loop that opens, reads, resolves and opens again, as a relay does.
type reader struct {
	*consumer
	cancel context.CancelFunc
	done   chan error
}

// keepReading reads through every end of a session.
func (r *rig) keepReading(s *cdc.Source) *reader {
	ctx, cancel := context.WithCancel(context.Background())
	l := &reader{
		consumer: &consumer{t: r.t, source: s, held: map[uint64]string{}},
		cancel:   cancel, done: make(chan error, 1),
	}
	go func() { l.done <- l.run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-l.done; !errors.Is(err, context.Canceled) {
			r.t.Errorf("reading ended with %v", err)
		}
	})
	return l
}

func (l *reader) run(ctx context.Context) error {
	for {
		if err := l.source.Open(ctx); err != nil {
			return err
		}
		session := &consumer{source: l.source}
		for {
			rows, err := l.source.Next(ctx)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				break
			}
			session.take(rows)
			l.mu.Lock()
			l.rows = append(l.rows, rows...)
			l.mu.Unlock()
		}
		if err := l.source.Close(ctx); err != nil {
			return err
		}
	}
}

// hasAll waits until every key came at least once.
func (l *reader) hasAll(keys []string) {
	l.t.Helper()
	pgtest.Eventually(l.t, 2*patience, func() error {
		got := l.keys()
		for _, key := range keys {
			if !slices.Contains(got, key) {
				return fmt.Errorf("message %q has not come", key)
			}
		}
		return nil
	})
}

// reconnect opens the application's connection again, after a restart.
func (r *rig) reconnect() {
	r.t.Helper()
	pgtest.Eventually(r.t, patience, func() error {
		ctx, cancel := context.WithTimeout(r.t.Context(), patience/4)
		defer cancel()
		conn := r.sql
		if err := conn.Ping(ctx); err == nil {
			return nil
		}
		var err error
		config := conn.Config()
		if conn, err = pgx.ConnectConfig(ctx, config); err != nil {
			return err
		}
		r.t.Cleanup(func() { _ = conn.Close(context.Background()) })
		r.sql = conn
		return nil
	})
}

// CDC-11: the walsender is frozen and sends neither data nor an end.
func TestSource_NoticesASilentServer(t *testing.T) {
	t.Parallel()
	r := rigOn(t, pgtest.New(t)) // databases are not dropped while a process of the server is frozen
	s := r.source(func(c *cdc.Config) { c.SilenceTimeout = 4 * time.Second })
	r.open(s)
	c := r.consume(s, nil)
	r.insert("a")
	c.wants("a")

	walsender, err := os.FindProcess(r.holder())
	if err != nil {
		t.Fatal(err)
	}
	if err := walsender.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thaw := func() { _ = walsender.Signal(syscall.SIGCONT) }
	defer thaw()
	r.insert("b")
	if err := c.fails(); err == nil || !strings.Contains(err.Error(), "server is silent: nothing read for ") {
		t.Errorf("the session ends with %v", err)
	}
	// The frozen walsender holds the slot; the Source stands by.
	opened := make(chan error, 1)
	go func() { opened <- s.Open(t.Context()) }()
	r.eventually("it stands by", func() bool { return s.State() == cdc.Standby })
	thaw()
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	again := r.consume(s, nil)
	again.has("b")
}

// A process that was frozen does not take what had waited in its buffers for a
// proof that it still holds the slot.
func TestSource_LastWord_DoesNotComeFromABuffer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.proxy()
	s := r.via(p, func(c *cdc.Config) { c.WALSenderTimeout = 4 * time.Second })
	r.open(s)
	c := r.consume(s, nil)
	r.insert("a")
	c.wants("a")
	r.eventually("the last word is fresh", func() bool { return time.Since(s.LastWord()) < time.Second })
	p.Freeze()
	r.insert("b") // waits in the proxy
	r.eventually("the server lets the slot go", func() bool { return r.holder() == 0 })
	free := time.Now()
	p.Thaw()
	c.ends()
	if word := s.LastWord(); word.After(free) {
		t.Errorf("the last word is of %v after the slot was free", word.Sub(free))
	}
}

// OUT-02: the server crashes and restarts under the relay.
func TestSource_SurvivesRestartsOfTheServer(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	r := rigOn(t, cluster)
	s := r.source()
	r.open(s) // makes the slot
	r.close(s)
	l := r.keepReading(s)
	var keys []string
	for i, mode := range []string{"immediate", "fast", "immediate"} {
		before := numbered(fmt.Sprintf("before-%d", i), 1, 20)
		r.insert(before...)
		if i == 1 {
			l.hasAll(before) // all is confirmed, or soon will be: a fast stop ends by itself
		}
		if err := cluster.Restart(mode); err != nil {
			t.Fatal(err)
		}
		r.reconnect()
		after := fmt.Sprint("after-", i)
		r.insert(after)
		begun := time.Now()
		l.has(after)
		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("alive %v after a restart (%s)", took, mode)
		}
		keys = append(append(keys, before...), after)
	}
	l.hasAll(keys)
	if lines := r.lines.FilterLevelExact(zapcore.ErrorLevel).All(); len(lines) > 0 {
		t.Errorf("errors in the log: %v", lines)
	}
}

// OUT-03: the host of the first relay vanished; the second waits for the slot.
func TestSource_TakesOverFromAHostThatVanished(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.proxy()
	r.exec("alter database " + r.parse(r.url).Database + " set wal_sender_timeout = '1h'") // only the relay's own helps
	first := r.via(p, func(c *cdc.Config) { c.WALSenderTimeout = 4 * time.Second })
	r.open(first)
	c := r.consume(first, everything)
	r.insert("a")
	c.wants("a")
	holder := r.holder()
	p.Freeze() // both sides stay connected

	second := r.source()
	r.open(second)
	again := r.consume(second, nil)
	again.wants("a")
	lines := r.logged("slot is held by another session, standing by")
	if len(lines) != 1 {
		t.Fatalf("%d lines about the holder, want 1: %v", len(lines), lines)
	}
	for _, want := range []string{r.config.Slot, fmt.Sprint(holder), "outbox-relay"} {
		if !strings.Contains(text(lines[0]), want) {
			t.Errorf("the line %s lacks %q", text(lines[0]), want)
		}
	}
	if got := value[int](r, "select count(*) from pg_replication_slots where slot_name = $1", r.config.Slot); got != 1 {
		t.Errorf("%d slots", got)
	}
}

// OUT-06 (a): an idle relay does not hold up a fast shutdown.
// OUT-06 (b): nor does one with open messages, and it confirms none of them.
// Nor does one whose consumer takes nothing, so that nothing is read.
func TestSource_LetsTheServerStop(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	r := rigOn(t, cluster)
	stop := func(what string) {
		t.Helper()
		if err := cluster.Stop("fast"); err != nil { // it gives up before any timeout of ours
			t.Fatalf("%s: %v", what, err)
		}
		if err := cluster.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.reconnect()
	}
	// No timeout may come to the aid of the server, and the stream and the watch
	// must each see it alone.
	slow := func(c *cdc.Config) { c.WALSenderTimeout, c.SilenceTimeout = time.Minute, time.Minute }
	blind := func(c *cdc.Config) { c.LeaseInterval, c.CheckInterval = time.Hour, time.Hour }
	s := r.source(slow, blind)
	r.open(s)
	idle := r.consume(s, nil)
	stop("idle")
	idle.ends()

	r.open(s)
	c := r.consume(s, everything)
	r.insert("a", "b", "c")
	c.wants("a", "b", "c")
	stop("with open messages")
	if err := c.fails(); err == nil || !strings.Contains(err.Error(), "server wants to stop") {
		t.Errorf("the session ended with %v", err)
	}

	begun := time.Now()
	r.open(s)
	if took := time.Since(begun); took < 200*time.Millisecond {
		t.Errorf("back after %v, want a pause", took)
	}
	r.close(s)

	s = r.source(slow)
	r.open(s)
	r.insert("d") // nobody takes them
	r.awaitSent()
	stop("with a consumer that takes nothing")
	if _, err := s.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "server wants to stop") {
		t.Errorf("the session ended with %v", err)
	}

	r.open(s)
	last := r.consume(s, nil)
	last.wants("a", "b", "c", "d")
}

// OUT-05: the server has thrown away WAL that the slot needed.
func TestSource_LostSlot(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.Options{Settings: map[string]string{
		"max_slot_wal_keep_size": "16MB", "max_wal_size": "48MB", "min_wal_size": "32MB", "checkpoint_timeout": "1h",
	}})
	r := rigOn(t, cluster)
	s := r.source()
	r.open(s)
	c := r.consume(s, everything)
	r.insert("a")
	c.wants("a")
	r.close(s)
	lose := func() {
		t.Helper()
		pgtest.Eventually(t, patience, func() error {
			r.noise()
			r.exec("select pg_switch_wal()")
			r.exec("checkpoint")
			if got := value[string](r, "select wal_status from pg_replication_slots where slot_name = $1", r.config.Slot); got != "lost" {
				return fmt.Errorf("the slot is %s", got)
			}
			return nil
		})
	}
	lose()

	careful := r.source(func(c *cdc.Config) { c.SlotLost = cdc.SlotLostStop })
	err := careful.Open(t.Context())
	var operator *cdc.OperatorError
	if !errors.Is(err, cdc.ErrSlotLost) || !errors.As(err, &operator) || !strings.Contains(operator.Hint(), "outbox-relay slot recreate --yes") {
		t.Fatalf("with SLOT_LOST=stop: %v", err)
	}
	r.open(s)
	if !s.Created() {
		t.Error("Created does not tell of the new slot")
	}
	if len(r.logged("slot lost, a new one takes its place")) != 1 {
		t.Error("the log does not say that the slot was lost")
	}

	// The same while the stream is open: its walsender is frozen.
	again := r.consume(s, everything)
	r.insert("b")
	again.wants("b")
	walsender, err := os.FindProcess(r.holder())
	if err != nil {
		t.Fatal(err)
	}
	if err := walsender.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thaw := time.AfterFunc(time.Second, func() { _ = walsender.Signal(syscall.SIGCONT) }) // the checkpoint waits for it
	defer thaw.Stop()
	lose()
	again.ends()
	r.open(s)
	if !s.Created() {
		t.Error("Created does not tell of the second new slot")
	}
}

// OUT-04: after a failover the new server has no such slot, or somebody dropped
// it.
func TestSource_MissedSlot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	careful := r.source(func(c *cdc.Config) { c.SlotLost = cdc.SlotLostStop })
	r.open(careful) // at first there is nothing to miss
	if !careful.Created() {
		t.Error("Created does not tell of the first slot")
	}
	r.close(careful)
	s := r.source()
	r.open(s)
	r.close(s)
	r.dropSlot()

	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error, 1)
	go func() { opened <- careful.Open(ctx) }()
	r.eventually("the problem is known", func() bool { return errors.Is(careful.Problem(), cdc.ErrSlotLost) })
	cancel()
	if err := <-opened; !errors.Is(err, context.Canceled) {
		t.Errorf("Open ended with %v", err)
	}
	if got := value[int](r, "select count(*) from pg_replication_slots where slot_name = $1", r.config.Slot); got != 0 {
		t.Error("a slot was made in silence")
	}

	r.open(s)
	if !s.Created() {
		t.Error("Created does not tell of the new slot")
	}
	if lines := r.logged("slot lost, a new one takes its place"); len(lines) != 1 {
		t.Errorf("%d lines about the new slot, want 1", len(lines))
	}
}

// OUT-08: one of the connections dies, then the other.
func TestSource_LosesOneOfItsConnections(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.source()
	r.open(s)
	c := r.consume(s, nil)
	const others = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and backend_type "

	for range 5 {
		if value[int](r, others+"<> 'walsender'") == 0 {
			continue
		}
		word := s.LastWord()
		r.eventually("the proof is renewed", func() bool { return s.LastWord().After(word.Add(200 * time.Millisecond)) })
	}
	r.insert("a")
	c.wants("a")
	if got := s.Stats().Sessions; got != 1 {
		t.Errorf("%d sessions, want the first to go on", got)
	}
	r.awaitRead(s, 1)
	r.close(s)

	// Now the stream alone can notice.
	s = r.source(func(c *cdc.Config) { c.LeaseInterval, c.CheckInterval = time.Hour, time.Hour })
	r.open(s)
	c = r.consume(s, nil)
	if value[int](r, others+"= 'walsender'") != 1 {
		t.Error("no walsender to end")
	}
	if err := c.fails(); err == nil || !strings.Contains(err.Error(), "57P01") {
		t.Errorf("the session ends with %v", err)
	}
	r.open(s)
	again := r.consume(s, nil)
	r.insert("b")
	again.has("b")
}

// The slot is taken away while nobody reads: only the watch can see it.
func TestSource_NoticesThatTheSlotIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.source(func(c *cdc.Config) {
		c.StatusInterval, c.SilenceTimeout, c.WALSenderTimeout = time.Hour, 3*time.Hour, 3*time.Hour
	})
	r.open(s)
	r.insert("a")     // nobody takes it
	r.awaitRead(s, 1) // from now on the stream reads nothing
	r.exec("select pg_terminate_backend($1)", r.holder())
	r.eventually("the session is over", func() bool { return s.State() == cdc.Closed })
	if _, err := s.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "slot is no longer held by this session") {
		t.Errorf("the session ended with %v", err)
	}
}

// Promise 3, with connections that break at any moment: every message comes,
// whatever was resolved and whatever was lost on the way.
func TestPromise3_HoldsThroughBrokenConnections(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.proxy()
	s := r.via(p)
	r.open(s) // makes the slot
	r.close(s)
	l := r.keepReading(s)
	var keys []string
	for round := range 12 {
		sessions := s.Stats().Sessions
		for i := range 10 {
			group := numbered(fmt.Sprintf("%d-%d", round, i), 1, 1+i%7)
			keys = append(keys, group...)
			r.insert(group...)
			if i == round%10 {
				[]func(){p.Reset, p.Cut}[round%2]()
			}
		}
		r.eventually("the next session begins", func() bool { return s.Stats().Sessions > sessions })
	}
	after := r.walEnd()
	l.hasAll(keys)
	r.eventually("the slot passes all of them", func() bool { return r.confirmedPast(after) })
}
