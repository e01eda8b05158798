package drill

import (
	"context"
	"fmt"
)

// Exec runs a statement, or several without arguments.
func (s *Stage) Exec(sql string, args ...any) {
	s.Helper()
	if _, err := s.DB.Exec(s.ctx, sql, args...); err != nil {
		s.Fatalf("%s: %v", sql, err)
	}
}

// Count returns the one number that a query gives.
func (s *Stage) Count(sql string, args ...any) (n int64) {
	s.Helper()
	if err := s.DB.QueryRow(s.ctx, sql, args...).Scan(&n); err != nil {
		s.Fatalf("%s: %v", sql, err)
	}
	return n
}

// Text returns the one text that a query gives; empty for null.
func (s *Stage) Text(sql string, args ...any) string {
	s.Helper()
	var text *string
	if err := s.DB.QueryRow(s.ctx, sql, args...).Scan(&text); err != nil {
		s.Fatalf("%s: %v", sql, err)
	}
	if text == nil {
		return ""
	}
	return *text
}

// AwaitCount waits until a query gives this number.
func (s *Stage) AwaitCount(want int64, sql string, args ...any) {
	s.Helper()
	s.Await(func(ctx context.Context) error {
		var n int64
		if err := s.DB.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
			return err
		}
		if n != want {
			return fmt.Errorf("%d, want %d: %s", n, want, sql)
		}
		return nil
	})
}

const undispatched = `select count(*) from outbox.messages m
	where not exists (select from outbox.dispatched d where d.message_id = m.id)`

// Undispatched is how many messages have no row that says that they are in their
// queue. The relay writes it a moment after the queue has said so.
func (s *Stage) Undispatched() int64 {
	s.Helper()
	return s.Count(undispatched)
}

// AwaitUndispatched waits until it is so many.
func (s *Stage) AwaitUndispatched(want int64) {
	s.Helper()
	s.AwaitCount(want, undispatched)
}

// Claims is the number of claims that a consumer has: of one event, or of all if
// event is empty.
func (s *Stage) Claims(consumer, event string) int64 {
	s.Helper()
	return s.Count(`select count(*) from outbox.claims where consumer = $1 and $2 in ('', event_id) and expires_at > now()`, consumer, event)
}

// AwaitWaiting waits until so many sessions of the database, or more, wait for a
// lock, as that of a claim which has not committed.
func (s *Stage) AwaitWaiting(sessions int64) {
	s.Helper()
	s.AwaitCount(1, `select (count(*) >= $1)::int from pg_stat_activity
		where datname = current_database() and wait_event_type = 'Lock'`, sessions)
}

// Hold locks a table against writes of others, in a transaction of its own: who
// writes there stands still, in the middle of his transaction, until release is
// called or the drill ends.
func (s *Stage) Hold(table string) (release func()) {
	s.Helper()
	tx, err := s.DB.Begin(s.ctx)
	s.Must(err)
	release = func() { _ = tx.Rollback(context.WithoutCancel(s.ctx)) } // nothing was written
	s.Cleanup(release)
	_, err = tx.Exec(s.ctx, `lock table `+table+` in share mode`)
	s.Must(err)
	return release
}
