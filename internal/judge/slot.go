package judge

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// sample is where the WAL ended at a time.
type sample struct {
	at  moment
	end int64
}

const (
	// sampleAge is how long samples are kept.
	sampleAge = 3 * time.Minute
	// maxRetained is the WAL that the slot may keep while Postgres is well.
	maxRetained = 64 << 20
)

// sight is what the slot and the small tables show.
type sight struct {
	end                 int64 // of the WAL
	confirmed, retained int64 // -1 without a slot
	deferred            int64
	epoch               int64
	holder              string
}

const sqlSight = `
select (pg_current_wal_lsn() - '0/0')::bigint,
	coalesce((select confirmed_flush_lsn - '0/0' from pg_replication_slots where slot_name = $1), -1)::bigint,
	coalesce((select pg_current_wal_lsn() - restart_lsn from pg_replication_slots where slot_name = $1), -1)::bigint,
	(select count(*) from outbox.deferred),
	coalesce((select epoch from outbox.relays where slot = $1), 0),
	coalesce((select holder from outbox.relays where slot = $1), '')`

func see(ctx context.Context, conn *pgx.Conn) (s sight, err error) {
	err = conn.QueryRow(ctx, sqlSight, slot).Scan(&s.end, &s.confirmed, &s.retained, &s.deferred, &s.epoch, &s.holder)
	return s, err
}

// lookAtSlot judges how far the slot is behind.
func (w *watcher) lookAtSlot(ctx context.Context, conn *pgx.Conn) error {
	report := w.run.report
	now := report.moment(time.Now())
	s, err := see(ctx, conn)
	if err != nil {
		return err
	}
	raise(report, &report.MaxRetained, s.retained)
	raise(report, &report.MaxDeferred, s.deferred)
	raise(report, &report.Sessions, s.epoch)
	if s.holder != w.holder {
		w.handOver(&s)
	}
	w.judgeSlot(now, &s)
	w.samples = append(w.samples, sample{now, s.end})
	for len(w.samples) > 0 && w.samples[0].at < now-milliseconds(sampleAge) {
		w.samples = w.samples[1:]
	}
	return nil
}

// handOver notes that the slot changed hands.
func (w *watcher) handOver(s *sight) {
	if w.holder != "" {
		w.run.report.count(&w.run.report.Takeovers)
	}
	w.holder = s.holder
	if place, ok := w.run.placeOf(s.holder); ok {
		w.run.relays.took(place)
	}
}

// judgeSlot wants the slot close to the end of the WAL once Postgres has been
// well for a while, whatever the queue does. What the end was a while ago it must
// have reached: a distance in bytes would depend on the load.
func (w *watcher) judgeSlot(now moment, s *sight) {
	r := w.run
	age := r.ledger.scaled(slotAge)
	calm := r.history.calmSince(marking, now)
	if now-calm < milliseconds(recovery) || calm == 0 && now < 2*age { // it has to start first
		return
	}
	missed := now // the slot is as far as the WAL was before this
	for i := len(w.samples) - 1; i >= 0 && w.samples[i].at >= calm; i-- {
		if w.samples[i].end <= s.confirmed {
			break
		}
		missed = w.samples[i].at
	}
	raise(r.report, &r.report.MaxSlotAge, time.Duration(now-missed)*time.Millisecond)
	if w.slotTold == max(calm, 1) {
		return
	}
	if r.ledger.exceeded(slotAge, missed, now) {
		w.slotTold = max(calm, 1)
		r.report.violate("slot", "at %v it has not reached the end of the WAL of %v, %d bytes behind, and Postgres is well since %v",
			now, missed, s.end-s.confirmed, calm)
	}
	if s.retained > maxRetained && r.history.longestCalm(marking, now-2*age, now) == 2*age {
		w.slotTold = max(calm, 1)
		r.report.violate("slot", "at %v it keeps %d bytes of WAL, and Postgres is well since %v", now, s.retained, calm)
	}
}
