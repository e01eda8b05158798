package bench

import (
	"context"
	"fmt"
	"time"
)

// measureMarks takes the WAL that the relay's own writing costs, a message: the
// server's WAL position before and after a drain, during which nobody else
// writes.
func measureMarks(ctx context.Context, r *rig) ([]Result, error) {
	if err := r.fill(ctx, r.cfg.Messages); err != nil {
		return nil, err
	}
	var each, dead figures
	for run := range r.cfg.Runs {
		var before, after int64
		_, err := r.onCopy(ctx, func(ctx context.Context, slot string) (took time.Duration, err error) {
			if before, err = r.position(ctx); err != nil {
				return 0, err
			}
			if took, err = r.receiveRelay(ctx, slot); err != nil {
				return 0, err
			}
			after, err = r.position(ctx)
			return took, err
		})
		if err != nil {
			return nil, err
		}
		var deadRows float64
		if err := r.conn.QueryRow(ctx, `select pg_stat_get_dead_tuples('outbox.messages'::regclass)`).Scan(&deadRows); err != nil {
			return nil, err
		}
		bytes := float64(after-before) / float64(r.filled)
		each, dead = append(each, bytes), append(dead, deadRows)
		r.say("marks %d/%d: %.1f bytes of WAL a message", run+1, r.cfg.Runs, bytes)
	}
	return []Result{
		each.result("marks.wal", "WAL of the marks while a backlog drains", "bytes/message").below(100.5),
		dead.result("marks.dead", "dead rows in messages", "rows").below(1),
	}, nil
}

func (r *rig) position(ctx context.Context) (lsn int64, err error) {
	err = r.conn.QueryRow(ctx, `select (pg_current_wal_insert_lsn() - '0/0')::bigint`).Scan(&lsn)
	return lsn, err
}

// measureMemory takes the highest resident memory of a relay in a process of its
// own: over the whole backlog, over one transaction of 200,000 messages, and in
// normal life.
func measureMemory(ctx context.Context, r *rig) ([]Result, error) {
	sink, err := startChild(ctx, nil, true, "bench", "sink")
	if err != nil {
		return nil, err
	}
	defer sink.stop()
	if err := r.fill(ctx, r.cfg.Messages); err != nil {
		return nil, err
	}
	backlog, err := r.peak(ctx, sink.line)
	if err != nil {
		return nil, err
	}
	if err := r.fillOnce(ctx, 200_000); err != nil {
		return nil, err
	}
	large, err := r.peak(ctx, sink.line)
	if err != nil {
		return nil, err
	}
	if err := r.fill(ctx, 1000); err != nil {
		return nil, err
	}
	normal, err := r.peak(ctx, sink.line)
	if err != nil {
		return nil, err
	}
	r.say("memory: %.0f MiB backlog, %.0f MiB large transaction, %.0f MiB 1,000 messages", backlog, large, normal)
	return []Result{
		figures{backlog}.result("memory.backlog", fmt.Sprintf("peak resident, backlog of %d messages", r.cfg.Messages), "MiB").below(100),
		figures{large}.result("memory.transaction", "peak resident, one transaction of 200,000 messages", "MiB").below(100),
		figures{normal}.result("memory.normal", "peak resident, 1,000 messages", "MiB").below(40),
	}, nil
}

// fillOnce makes a backlog of n messages in one transaction.
func (r *rig) fillOnce(ctx context.Context, n int) error {
	if err := r.fill(ctx, 10); err != nil {
		return err
	}
	r.say("writing one transaction of %d messages", n)
	r.filled += n
	r.orderingKey = ""
	return r.exec(ctx, fmt.Sprintf(`insert into outbox.messages (key, queue, ordering_key, payload)
		select 'once-' || i, 'bench', 'k' || i %% 1000, jsonb_build_object('n', i, 'fill', repeat('x', 380))
		from generate_series(1, %d) i`, n))
}

// peak runs a relay as a process of its own over the backlog and returns the
// highest resident memory that it had, in MiB.
func (r *rig) peak(ctx context.Context, url string) (mib float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	_, err = r.onCopy(ctx, func(ctx context.Context, slot string) (time.Duration, error) {
		began := time.Now()
		moving, err := startChild(ctx, map[string]string{
			"DATABASE_URL": r.url, "RELAY_SLOT": slot, "INFRAI_API_KEY": "bench", "INFRAI_BASE_URL": url,
			"RELAY_LOG_LEVEL": "warn",
		}, false, "run")
		if err != nil {
			return 0, err
		}
		defer moving.stop()
		if _, err := r.awaitMarks(ctx); err != nil {
			return 0, err
		}
		mib, err = residentPeak(moving.pid)
		return time.Since(began), err
	})
	return mib, err
}

// residentPeak is the most memory that a process ever had resident, in MiB.
func residentPeak(pid int) (float64, error) {
	bytes, err := residentBytes(pid, "VmHWM")
	return mebibytes(bytes), err
}
