package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/plural"
	"github.com/outbox-relay/outbox-relay/internal/systemd"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
)

const (
	// serviceInterval is about how often systemd hears of the relay.
	serviceInterval = time.Second
	// readyAfter is when the start of the service is over at the latest. A relay
	// may wait for long before it moves its first message, and all the while it
	// does what it should.
	readyAfter = 10 * time.Second
	// lastWrites is what a stop may take beside RELAY_DRAIN_TIMEOUT.
	lastWrites = 15 * time.Second
)

// service is the relay as systemd sees it.
type service struct {
	manager *systemd.Manager
	admin   admin.Config
	state   func() relay.State
	drain   time.Duration
	log     *zap.Logger

	started     time.Time
	ready, deaf bool
}

// tellSystemd tells systemd how the relay is doing until stop is called, if it is
// systemd that started it.
func (p *program) tellSystemd(ctx context.Context, cfg *config.Config, moving *relay.Relay, log *zap.Logger) (stop func()) {
	manager := systemd.Find(p.environment().Lookup)
	if manager == nil {
		return func() {}
	}
	s := &service{
		manager: manager, admin: cfg.Admin, state: moving.State, drain: cfg.Relay.DrainTimeout,
		log: log.Named("systemd"), started: time.Now(),
	}
	telling, end := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	group.Go(func() { s.run(telling, ctx.Done()) })
	return func() { end(); group.Wait() }
}

// run goes on while the relay drains, until ctx ends.
func (s *service) run(ctx context.Context, stopped <-chan struct{}) {
	ticker := time.NewTicker(s.interval())
	defer ticker.Stop()
	for {
		now := s.state()
		s.tell(ctx, s.news(&now)...)
		select {
		case <-ticker.C:
		case <-stopped:
			stopped = nil
			s.tell(ctx, systemd.Stopping, systemd.ExtendTimeout(s.drain+lastWrites))
		case <-ctx.Done():
			return
		}
	}
}

// interval lets three words in a row get lost before the watchdog bites.
func (s *service) interval() time.Duration {
	if watchdog := s.manager.Watchdog(); watchdog > 0 {
		return min(serviceInterval, watchdog/4)
	}
	return serviceInterval
}

// news is what there is to tell.
//
// The relay is ready when it knows how it is doing, which need not be well: a
// database that is down is no reason to start the relay again, and whether
// messages move is what /readyz says. Until then the end of the process, such as
// that on a missing schema, is a failure of the start.
//
// It is alive as long as /livez says so. When that turns red, systemd hears no
// more of it, and ends the process with SIGABRT; Go then writes what each
// goroutine is doing.
func (s *service) news(now *relay.State) []string {
	live := admin.Live(&s.admin, now)
	news := []string{systemd.Status(s.sentence(now, &live))}
	settled := now.Phase != relay.Starting || now.Reason != "" || now.At.Sub(s.started) >= readyAfter
	if settled && !s.ready {
		s.ready = true
		news = append(news, systemd.Ready)
	}
	if live.OK && s.manager.Watchdog() > 0 {
		news = append(news, systemd.Alive)
	}
	return news
}

// sentence is how the relay is doing, for people.
func (s *service) sentence(now *relay.State, live *admin.Verdict) string {
	ready := admin.Ready(&s.admin, now, nil)
	switch {
	case !live.OK:
		return "stuck: " + first(live.Reasons)
	case !ready.OK:
		return fmt.Sprintf("%s, not ready: %s", now.Phase, first(ready.Reasons))
	case now.Phase == relay.Standby:
		return fmt.Sprintf("standby since %s, the slot is held by %s", now.Since.Format(time.DateTime), now.Source.SlotHolder)
	}
	return fmt.Sprintf("%s since %s, %s dispatched, %d in memory",
		now.Phase, now.Since.Format(time.DateTime), plural.Of(now.Totals.Dispatched, "message", "messages"), now.Router.Messages)
}

// first is the first of some findings, and how many more there are.
func first(findings []admin.Finding) string {
	if more := len(findings) - 1; more > 0 {
		return fmt.Sprintf("%s (and %d more)", findings[0].Text, more)
	}
	return findings[0].Text
}

// tell logs once that systemd does not hear, and once that it does again.
func (s *service) tell(ctx context.Context, news ...string) {
	err := s.manager.Tell(ctx, news...)
	if ctx.Err() != nil || (err != nil) == s.deaf {
		return
	}
	s.deaf = err != nil
	if s.deaf {
		s.log.Warn("systemd does not hear how the relay is doing", zap.Error(err))
		return
	}
	s.log.Info("systemd hears how the relay is doing")
}
