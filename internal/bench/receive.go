package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// measureReceive compares the relay, with a publisher that does nothing but
// with durable marks, with a loop that only receives the same backlog.
func measureReceive(ctx context.Context, r *rig) ([]Result, error) {
	if err := r.fill(ctx, r.cfg.Messages); err != nil {
		return nil, err
	}
	var bare, full, ratio figures
	for run := range r.cfg.Runs {
		alone, err := r.onCopy(ctx, r.receiveBare)
		if err != nil {
			return nil, err
		}
		ours, err := r.onCopy(ctx, r.receiveRelay)
		if err != nil {
			return nil, err
		}
		bare, full, ratio = append(bare, alone), append(full, ours), append(ratio, ours/alone)
		r.say("receive %d/%d: bare loop %.0f/s, relay with marks %.0f/s", run+1, r.cfg.Runs, alone, ours)
	}
	return []Result{
		bare.result("receive.bare", "bare pglogrepl receive loop", "messages/s"),
		full.result("receive.relay", "relay, publisher that does nothing, durable marks", "messages/s"),
		ratio.result("receive.ratio", "relay / bare loop", "ratio").atLeast(0.8),
	}, nil
}

// onCopy runs do over a copy of the slot and returns messages per second.
func (r *rig) onCopy(ctx context.Context, do func(context.Context, string) (time.Duration, error)) (float64, error) {
	slot, err := r.copySlot(ctx)
	if err != nil {
		return 0, err
	}
	took, err := do(ctx, slot)
	if err != nil {
		return 0, err
	}
	return float64(r.filled) / took.Seconds(), r.dropSlot(ctx, slot)
}

func (r *rig) receiveRelay(ctx context.Context, slot string) (time.Duration, error) {
	cfg, err := r.settings(ctx, slot, nil)
	if err != nil {
		return 0, err
	}
	counted := newCounter(nil, r.filled)
	return r.drain(ctx, cfg, counted, counted)
}

// receiveBare receives the backlog and looks at nothing but the first byte of
// each change.
func (r *rig) receiveBare(ctx context.Context, slot string) (time.Duration, error) {
	conn, err := pgconn.Connect(ctx, r.url+"&replication=database")
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = pglogrepl.StartReplication(ctx, conn, slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names 'outbox_relay'"},
	})
	if err != nil {
		return 0, err
	}
	var first time.Time
	for n := 0; n < r.filled; {
		received, err := conn.ReceiveMessage(context.Background())
		if err != nil {
			return 0, err
		}
		data, ok := received.(*pgproto3.CopyData)
		if !ok {
			return 0, fmt.Errorf("unexpected %T", received)
		}
		if data.Data[0] != pglogrepl.XLogDataByteID {
			continue
		}
		log, err := pglogrepl.ParseXLogData(data.Data[1:])
		if err != nil {
			return 0, err
		}
		if log.WALData[0] == byte(pglogrepl.MessageTypeInsert) {
			if n == 0 {
				first = time.Now()
			}
			n++
		}
	}
	return time.Since(first), nil
}
