package judge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/waits"
)

// hurtDatabase breaks the server, the slot and the relays' connections.
func (r *run) hurtDatabase(ctx context.Context) {
	acts := []act{
		r.terminate(statements|stream, "true"), r.terminate(stream, "backend_type = 'walsender'"),
		r.terminate(statements, "backend_type = 'client backend'"),
		r.restart("fast", false), r.restart("immediate", true), r.crash, r.dropSlot, r.dropSlot,
	}
	acts = append(acts, r.network("statements", statements, r.statementProxy)...)
	acts = append(acts, r.network("stream", stream, r.streamProxy)...)
	r.hurt(ctx, databaseKind, &r.peace.infrastructure, 3*time.Second, 10*time.Second, acts)
}

func (r *run) restart(mode string, crash bool) act {
	return func(context.Context, *rand.Rand) {
		r.sudden(disturbance{parts: server, name: "server restarted, " + mode, crash: crash}, func() {
			if err := r.cluster.Restart(mode); err != nil {
				r.report.violate("judge", "restart: %v", err)
			}
		})
	}
}

// crash kills all processes of the server.
func (r *run) crash(ctx context.Context, dice *rand.Rand) {
	pause := between(dice, 0, 3*time.Second)
	r.sudden(disturbance{parts: server, name: "server killed", crash: true}, func() {
		if err := r.cluster.Kill(); err != nil {
			r.report.violate("judge", "kill the server: %v", err)
		}
		waits.Sleep(ctx, pause)
		if err := r.cluster.Start(context.WithoutCancel(ctx)); err != nil {
			r.report.violate("judge", "start the server: %v", err)
		}
	})
}

// terminate ends those backends of the relays for which a condition holds.
func (r *run) terminate(parts part, condition string) act {
	return func(ctx context.Context, _ *rand.Rand) {
		r.sudden(disturbance{parts: parts, name: "backends terminated", detail: condition}, func() {
			_ = r.ask(ctx, func(ctx context.Context, conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
					where datname = current_database() and application_name <> $1 and pid <> pg_backend_pid() and `+condition, applicationName)
				return err
			})
		})
	}
}

// dropSlot drops the slot under the relay that holds it.
func (r *run) dropSlot(ctx context.Context, _ *rand.Rand) {
	end := r.history.begin(disturbance{parts: theSlot, name: "slot dropped"})
	defer end()
	err := r.ask(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		for {
			_, err := conn.Exec(ctx, `select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = $1`, slot)
			if err == nil {
				_, err = conn.Exec(ctx, `select pg_drop_replication_slot($1)`, slot)
			}
			if err == nil || !waits.Sleep(ctx, time.Millisecond) {
				return err
			}
		}
	})
	if err != nil {
		r.report.say("slot not dropped: %v", err)
	}
}

// askTimeout bounds what the judge asks the server.
const askTimeout = 5 * time.Second

// ask does something on a connection of its own.
func (r *run) ask(ctx context.Context, do func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, r.url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return do(ctx, conn)
}
