package relay

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
)

// Settings are an operator's settings of one queue, from the table queues. The
// zero value is a queue without a row there.
type Settings struct {
	// Paused stops sending to the queue; its messages wait in the table.
	Paused bool
	// MaxInFlight overrides Config.MaxInFlightPerQueue; 0 does not.
	MaxInFlight int
	// MaxAttempts overrides Config.MaxAttempts; 0 does not.
	MaxAttempts int
}

// settingsPoll is how often the table queues is read.
const settingsPoll = 2 * time.Second

// followSettings applies what operators write into the table queues.
func (s *session) followSettings(ctx context.Context) error {
	ticker := time.NewTicker(settingsPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		settings, err := s.relay.loading.settings(ctx)
		switch {
		case err == nil:
			s.router.apply(time.Now(), settings)
		case isPermanent(err):
			return err
		case ctx.Err() == nil:
			s.log.Debug("settings of queues cannot be read", zap.Error(err))
		}
	}
}

// settings reads the table queues.
func (s *store) settings(ctx context.Context) (all map[string]Settings, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, s.sql.settings)
		if err != nil {
			return err
		}
		all = map[string]Settings{}
		var name string
		var one Settings
		_, err = pgx.ForEachRow(rows, []any{&name, &one.Paused, &one.MaxInFlight, &one.MaxAttempts}, func() error {
			all[name] = one
			return nil
		})
		return err
	})
	return all, err
}

// apply takes the settings of all queues over.
func (r *router) apply(now time.Time, settings map[string]Settings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settings = settings
	for name, q := range r.queues {
		if q.settings == settings[name] {
			continue
		}
		q.settings = settings[name]
		r.log.Info("settings of a queue changed", zap.String(keyQueue, name), zap.Bool("paused", q.settings.Paused))
		r.list(q)
		r.wakeOne()
	}
	r.holdDue(now)
	signal(r.load)
}
