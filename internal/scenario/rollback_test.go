package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
)

// APP-01: a connection that breaks, a backend that is ended, a session that has
// been idle for too long and a serialization failure, each in the middle of a
// transaction whose rows the server has already decoded, leave no message; the
// attempt that follows does.
func TestAPP01_TransactionsThatBreakOff(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	w.Start().AwaitLog("session began")
	w.Exec(`create table stock (id int primary key, n int)`)
	w.Exec(`insert into stock values (1, 0)`)
	for name, breakOff := range map[string]func(tx pgx.Tx) error{
		"disconnect": func(tx pgx.Tx) error {
			return tx.Conn().PgConn().Conn().Close()
		},
		"terminated": func(tx pgx.Tx) error {
			w.Exec(`select pg_terminate_backend($1, 10000)`, tx.Conn().PgConn().PID())
			return wantCode(tx.Commit(t.Context()), "57P01")
		},
		"idle": func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `set local idle_in_transaction_session_timeout = '10ms'`); err != nil {
				return err
			}
			pgtest.Eventually(t, scenario.Patience, func() error {
				if w.Count(`select count(*) from pg_stat_activity where pid = $1`, tx.Conn().PgConn().PID()) > 0 {
					return errors.New("the session is still there")
				}
				return nil
			})
			return nil
		},
		"serialization": func(tx pgx.Tx) error {
			w.Exec(`update stock set n = n + 1`)
			_, err := tx.Exec(t.Context(), `update stock set n = n + 1`)
			return errors.Join(wantCode(err, "40001"), tx.Rollback(t.Context()))
		},
	} {
		for round := range 5 {
			conn := w.Connect()
			tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 50 {
				if err := scenario.Write(t.Context(), tx, scenario.Message{Key: fmt.Sprintf("%s-%d-%d-lost", name, round, i), OrderingKey: name}); err != nil {
					t.Fatal(err)
				}
			}
			if err := breakOff(tx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			_ = conn.Close(context.Background())
			w.Insert(scenario.Message{Key: fmt.Sprintf("%s-%d-kept", name, round), OrderingKey: name})
		}
	}
	w.Settle()
	if n := w.Count(`select count(*) from outbox.messages where key like '%lost'`); n != 0 {
		t.Errorf("%d messages of broken transactions are in the table", n)
	}
}

// wantCode returns nil for an error of the server with this code.
func wantCode(err error, code string) error {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == code {
		return nil
	}
	return fmt.Errorf("got %w, want code %s", err, code)
}
