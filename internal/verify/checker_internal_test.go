package verify

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// desk is a checker whose checks the test makes up.
type desk struct {
	*Checker
	logs *observer.ObservedLogs

	mu     sync.Mutex
	leads  bool
	checks []Config
	answer func(ctx context.Context) (*Report, error)
}

// newDesk starts a checker in a bubble of synctest.
func newDesk(t *testing.T, interval time.Duration) *desk {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	d := &desk{logs: logs, leads: true}
	d.answer = sound
	d.Checker = NewChecker(Settings{Interval: interval}, Options{
		Schema: "outbox", Slot: "s",
		Connect: func(context.Context) (*pgx.Conn, error) { return nil, nil }, // nobody uses it
		Leads: func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.leads
		},
	}, zap.New(core))
	d.run = func(ctx context.Context, _ *pgx.Conn, cfg Config) (*Report, error) {
		d.mu.Lock()
		d.checks = append(d.checks, cfg)
		answer := d.answer
		d.mu.Unlock()
		return answer(ctx)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); d.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	return d
}

// report is one with or without a fault.
func report(ok bool) *Report {
	r := &Report{OK: ok, At: time.Now(), Faults: map[Kind]int64{}}
	r.From, r.Messages = 40, 7
	if !ok {
		r.Faults[Unaccounted], r.Unaccounted, r.Examples = 1, 1, []Fault{{MessageID: 41, Kind: Unaccounted}}
	}
	return r
}

// after lets time pass, and expects so many checks since the start.
func (d *desk) after(t *testing.T, passed time.Duration, checks int) {
	t.Helper()
	<-time.After(passed)
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.checks) != checks {
		t.Fatalf("after another %s there were %d checks, want %d", passed, len(d.checks), checks)
	}
}

// last is what the last check was to look at.
func (d *desk) last() Config {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.checks[len(d.checks)-1]
}

// from changes how things are from now on.
func (d *desk) from(leads bool, answer func(context.Context) (*Report, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leads, d.answer = leads, answer
}

func faulty(context.Context) (*Report, error) { return report(false), nil }

func sound(context.Context) (*Report, error) { return report(true), nil }

func TestChecker_ChecksOnceADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		d := newDesk(t, 24*time.Hour)
		d.after(t, turn, 0)
		if due := d.Last().Due; due.Sub(began) != turn+firstCheck || d.Last().Report != nil {
			t.Errorf("the first check is due after %s", due.Sub(began))
		}
		d.after(t, firstCheck, 1)
		if cfg := d.last(); cfg.Since != 26*time.Hour || cfg.Rest == 0 || cfg.From != 0 || cfg.Schema != "outbox" || cfg.Slot != "s" {
			t.Errorf("the first check is %+v", cfg)
		}
		last := d.Last()
		if last.Report == nil || last.Due.Sub(last.Ended) != 24*time.Hour || d.logs.FilterMessage("outbox checked").Len() != 1 {
			t.Errorf("got %+v", last)
		}
		d.after(t, 23*time.Hour, 1)
		d.after(t, 2*time.Hour, 2)
	})
}

func TestChecker_ChecksOnlyWhileItsRelayLeads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, time.Hour)
		d.from(true, faulty)
		d.after(t, 11*time.Minute, 1)
		d.from(false, faulty)
		d.after(t, 48*time.Hour, 1)
		if last := d.Last(); last.Report != nil || !last.Due.IsZero() {
			t.Errorf("a standby tells of its last check: %+v", last)
		}
		d.from(true, sound)
		d.after(t, firstCheck-turn, 1)
		d.after(t, 3*turn, 2)
	})
}

// What the sweep has mended since must not stay red for a day, and what is wrong
// stays in view until it is mended.
func TestChecker_LooksAgainSoonAfterAFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 24*time.Hour)
		d.from(true, faulty)
		d.after(t, firstCheck+2*turn, 1)
		line := d.logs.FilterMessage("outbox has faults").All()
		if len(line) != 1 || line[0].Level != zapcore.ErrorLevel || d.Last().Report.OK {
			t.Errorf("got %v, %+v", line, d.Last())
		}
		d.from(true, sound)
		d.after(t, checkAgain, 2)
		if cfg := d.last(); cfg.From != 40 || cfg.Since != 0 {
			t.Errorf("the second check does not look at the same: %+v", cfg)
		}
		if !d.Last().Report.OK || d.Last().Due.Sub(d.Last().Ended) != 24*time.Hour {
			t.Errorf("got %+v", d.Last())
		}
	})
}

// A check that fails is tried again, stays due, and looks back as far as the last
// one that did not.
func TestChecker_IsDueUntilItWorks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 24*time.Hour)
		d.after(t, 25*time.Hour-time.Minute, 2)
		due := d.Last().Due
		d.from(true, func(context.Context) (*Report, error) { return nil, errors.New("no server") })
		d.after(t, 72*time.Hour, 2+196)
		if last := d.Last(); last.Failures != 196 || !last.Due.Equal(due) || last.Report == nil {
			t.Errorf("got %+v, was due %s", last, due)
		}
		if since := d.last().Since; since < 70*time.Hour {
			t.Errorf("it looks back %s", since)
		}
	})
}

func TestChecker_EndsWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 24*time.Hour)
		d.from(true, func(ctx context.Context) (*Report, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		d.after(t, 25*time.Hour, 2)
		if d.Last().Failures != 1 || d.logs.FilterField(zap.Error(errTooLong)).Len() != 1 {
			t.Errorf("got %+v, %v", d.Last(), d.logs.All())
		}
	})
}

func TestChecker_CanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 0)
		d.after(t, 48*time.Hour, 0)
	})
}

func TestSettings_Validate(t *testing.T) {
	t.Parallel()
	for interval, ok := range map[time.Duration]bool{0: true, 10 * time.Second: true, time.Second: false, -time.Hour: false} {
		if err := (&Settings{Interval: interval}).Validate(); (err == nil) != ok {
			t.Errorf("%s: %v", interval, err)
		}
	}
}
