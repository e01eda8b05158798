package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Phase is a part of the measurement with one behaviour of the queue.
type Phase struct {
	Name string `json:"name"`
	// From and To are seconds since the beginning.
	From float64 `json:"from"`
	To   float64 `json:"to"`
}

// Sample is how things stood at one moment.
type Sample struct {
	// At is seconds since the beginning.
	At    float64 `json:"at"`
	Phase string  `json:"phase"`
	// Retained is the WAL that the server keeps for the slot, and Unconfirmed
	// what the relay has not confirmed, in bytes.
	Retained    int64 `json:"retained"`
	Unconfirmed int64 `json:"unconfirmed"`
	// WAL is the end of the WAL, in bytes.
	WAL int64 `json:"wal"`
	// Deferred is the rows of the table deferred, as the statistics have them.
	Deferred int64 `json:"deferred"`
	// Committed and Accepted count messages since the beginning.
	Committed int `json:"committed"`
	Accepted  int `json:"accepted"`
	// Rate is the messages accepted each second since the sample before.
	Rate float64 `json:"rate"`
	// Resident is the relay's resident memory, in bytes.
	Resident int64 `json:"resident"`
}

// enter begins a phase.
func (o *outage) enter(name string) {
	now := time.Since(o.began).Seconds()
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.phases); n > 0 {
		o.phases[n-1].To = now
	}
	o.phases = append(o.phases, Phase{Name: name, From: now})
	o.rig.say("%s", name)
}

func (o *outage) phase() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.phases); n > 0 {
		return o.phases[n-1].Name
	}
	return ""
}

// sample looks once a second until done is closed.
func (o *outage) sample(ctx context.Context, done <-chan struct{}) error {
	conn, err := pgx.Connect(ctx, o.rig.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var before Sample
	for {
		select {
		case <-tick.C:
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		s, err := o.look(ctx, conn)
		if err != nil {
			return fmt.Errorf("take a sample: %w", err)
		}
		s.Rate = float64(s.Accepted-before.Accepted) / (s.At - before.At)
		before = s
		o.mu.Lock()
		o.samples = append(o.samples, s)
		o.mu.Unlock()
	}
}

// look takes one sample. Counting the rows of deferred would cost more than all
// the rest, so that number is the statistics'.
func (o *outage) look(ctx context.Context, conn *pgx.Conn) (s Sample, err error) {
	s.Phase = o.phase()
	err = conn.QueryRow(ctx, `
		select (w - restart_lsn)::bigint, (w - confirmed_flush_lsn)::bigint, (w - '0/0')::bigint,
			(select n_tup_ins - n_tup_del from pg_stat_user_tables where schemaname = 'outbox' and relname = 'deferred')
		from pg_current_wal_lsn() w, pg_replication_slots where slot_name = $1`, outageSlot).
		Scan(&s.Retained, &s.Unconfirmed, &s.WAL, &s.Deferred)
	if err != nil {
		return s, err
	}
	counts, err := o.queue.counts(ctx)
	if err != nil {
		return s, err
	}
	s.At, s.Accepted, s.Committed = time.Since(o.began).Seconds(), counts.total(), o.committed.total()
	s.Resident, err = residentBytes(o.relay.pid, "VmRSS")
	return s, err
}

// residentBytes reads a size of proc_pid_status(5): VmRSS is what a process has
// resident now, VmHWM the most that it ever had.
func residentBytes(pid int, field string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib * 1024, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc/%d/status", field, pid)
}
