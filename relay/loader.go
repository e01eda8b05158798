package relay

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/waits"
)

// loadAll loads whatever the router wants until ctx ends.
func (s *session) loadAll(ctx context.Context) error {
	poll := time.NewTicker(duePoll)
	defer poll.Stop()
	due := true
	for {
		s.pulses.loader.Turn(time.Now())
		select {
		case <-poll.C:
			due = true
		default:
		}
		j, ok := s.router.nextJob(time.Now(), due)
		if !ok {
			s.pulses.loader.End(time.Now())
			select {
			case <-s.router.load:
			case <-poll.C:
				due = true
			case <-ctx.Done():
				return nil
			}
			continue
		}
		if j.hold == nil {
			due = false
		}
		if err := s.loadOne(ctx, j); err != nil {
			return err
		}
	}
}

func (s *session) loadOne(ctx context.Context, j job) error {
	var rows []deferredRow
	var more bool
	err := s.relay.retry(ctx, func() (err error) {
		rows, more, err = s.relay.loading.deferred(ctx, j, s.relay.cfg.WindowBytes/bytesShare)
		if !over(ctx) {
			s.pulses.loader.Note(time.Now(), err)
		}
		return err
	})
	if over(ctx) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range rows {
		if !rows[i].unseen { // one that is missing is forgotten: it has no key

			rows[i].carried = s.relay.takeCarried(&rows[i].row)
		}
	}
	if s.router.loaded(time.Now(), j, rows, more) {
		waits.Sleep(ctx, againPause)
	}
	if len(rows) > 0 {
		s.log.Debug("deferred messages loaded", zap.Int(keyMessages, len(rows)))
	}
	return nil
}
