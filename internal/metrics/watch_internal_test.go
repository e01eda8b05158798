package metrics

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/relay"
)

// watching is a watch of a database, with the log that it writes.
func watching(t *testing.T, connect func(context.Context) (*pgx.Conn, error)) (*watch, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	w := &watch{connect: connect, state: func() relay.State { return relay.State{} }, schema: "outbox", slot: "none", log: zap.New(core), now: time.Now}
	w.seen.Store(&sight{at: w.now()})
	t.Cleanup(w.disconnect)
	return w, logs
}

func TestWatch_KeepsItsConnectionWhileItWorks(t *testing.T) {
	t.Parallel()
	url, connections := pgtest.Migrated(t), 0
	w, logs := watching(t, func(ctx context.Context) (*pgx.Conn, error) {
		connections++
		return pgx.Connect(ctx, url)
	})
	w.read(t.Context())
	w.read(t.Context())
	if seen := w.last(); seen.figures == nil || seen.failures != 0 || connections != 1 {
		t.Fatalf("after two reads: %+v, %d connections, %v", seen, connections, logs.All())
	}
	first := w.last()
	_ = w.conn.Close(t.Context()) // a server that restarts
	w.read(t.Context())
	if connections != 2 || w.last() == first || w.last().failures != 0 {
		t.Errorf("%d connections, %+v", connections, w.last())
	}
}

// A database that does not answer costs one line of the log, and what was seen
// before stays until it is too old.
func TestWatch_FailsQuietly(t *testing.T) {
	t.Parallel()
	w, logs := watching(t, func(context.Context) (*pgx.Conn, error) { return nil, errors.New("no server") })
	known := &status.Figures{}
	w.seen.Store(&sight{figures: known, at: noon})
	w.read(t.Context())
	w.read(t.Context())
	if seen := w.last(); seen.figures != known || !seen.at.Equal(noon) || seen.failures != 2 {
		t.Errorf("got %+v", seen)
	}
	if logs.Len() != 1 {
		t.Errorf("the log has %d lines: %v", logs.Len(), logs.All())
	}
}

func TestWatch_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	w, logs := watching(t, func(ctx context.Context) (*pgx.Conn, error) {
		stop()
		<-ctx.Done() // a server that does not answer
		return nil, ctx.Err()
	})
	w.run(ctx)
	if logs.Len() != 0 || w.last().failures != 0 {
		t.Errorf("the end is told as a failure: %v", logs.All())
	}
}

// A server that is slow to answer is asked less often, and often enough.
func TestWatch_PausesLongerAfterSlowAnswers(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{
		20 * time.Millisecond: readInterval, time.Second: 20 * time.Second, readTimeout: readSeldom,
	} {
		if got := pause(took); got != want {
			t.Errorf("after %s the pause is %s, want %s", took, got, want)
		}
	}
	if readSeldom+readTimeout >= fresh {
		t.Errorf("figures are too old after %s, and come every %s", fresh, readSeldom+readTimeout)
	}
}

// A connection that is old gives way to a new one.
func TestWatch_RenewsItsConnection(t *testing.T) {
	t.Parallel()
	url, connections := pgtest.Migrated(t), 0
	w, _ := watching(t, func(ctx context.Context) (*pgx.Conn, error) {
		connections++
		return pgx.Connect(ctx, url)
	})
	now := noon
	w.now = func() time.Time { return now }
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {connectionAge - time.Second, 1}, {time.Second, 2}, {time.Minute, 2}} {
		now = now.Add(step.after)
		w.read(t.Context())
		if connections != step.want || w.last().failures != 0 {
			t.Errorf("after %s: %d connections, want %d; %+v", now.Sub(noon), connections, step.want, w.last())
		}
	}
}
