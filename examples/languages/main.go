// Command languages plays one of the examples beside it: it runs a program
// against a throwaway Postgres that has the outbox and the tables of the
// example, and compares what the program prints, and what is in the tables
// afterwards, with what should be there.
//
//	go run ./examples/languages EXPECTED PROGRAM [ARGUMENT...]
//
// The program gets the server's address as DATABASE_URL. run.sh plays all those
// that the machine has the language for.
package main

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/schema"
)

// patience is for the program; the Java one compiles itself first.
const patience = 2 * time.Minute

// tables are those of the shop and of its mailer.
const tables = `
create table orders (id bigint primary key, total numeric not null);
create table mails (id bigint generated always as identity primary key, order_id bigint not null);
`

// role is what the program connects as; it has what an application has.
const role = `
create role shop_app login;
grant outbox_app to shop_app;
grant insert on orders to shop_app;
grant insert, select (id) on mails to shop_app;
`

// leftovers counts what an example must have left: one order, one mail, one
// claim with its result, the message of the order, and nothing that was withdrawn.
const leftovers = `
select format('%s orders, %s mails, %s claims, %s messages of the order, %s withdrawn ones',
	(select count(*) from orders), (select count(*) from mails),
	(select count(*) from outbox.claims where result = '{"mail": 1}'),
	(select count(*) from outbox.messages where key = 'order-1041-placed' and ordering_key = 'order-1041'),
	(select count(*) from outbox.messages where key = 'order-1041-review'))
`

const wanted = "1 orders, 1 mails, 1 claims, 1 messages of the order, 0 withdrawn ones"

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: languages EXPECTED PROGRAM [ARGUMENT...]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := play(ctx, os.Args[1], os.Args[2:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "languages:", err)
		os.Exit(1)
	}
}

// play runs the program and judges it.
func play(ctx context.Context, expected string, program []string) (err error) {
	want, err := os.ReadFile(expected)
	if err != nil {
		return err
	}
	cluster, err := pgtest.Start(ctx, pgtest.Options{})
	if err != nil {
		return err
	}
	defer func() {
		if closed := cluster.Close(); err == nil {
			err = closed
		}
	}()
	address, err := url.Parse(cluster.URL("postgres"))
	if err != nil {
		return err
	}
	conn, err := prepare(ctx, address.String())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	address.User = url.User("shop_app")
	got, err := run(ctx, address.String(), program)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("the program printed\n%swant\n%s", got, want)
	}
	return judge(ctx, conn)
}

// prepare makes the outbox, the tables of the example, and its role.
func prepare(ctx context.Context, database string) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return nil, err
	}
	names := schema.Config{Schema: schema.DefaultSchema, Publication: schema.DefaultPublication}
	if _, err := schema.Migrate(ctx, conn.Config(), names, zap.NewNop()); err != nil {
		return nil, err
	}
	var grants strings.Builder
	err = schema.Grants(&grants, schema.GrantsConfig{
		Schema: schema.DefaultSchema, Database: conn.Config().Database, Application: schema.DefaultApplication,
	})
	if err != nil {
		return nil, err
	}
	_, err = conn.PgConn().Exec(ctx, grants.String()+tables+role).ReadAll()
	return conn, err
}

// run returns what the program prints; its errors go where ours go.
func run(ctx context.Context, database string, program []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	command := exec.CommandContext(ctx, program[0], program[1:]...)
	command.Env = append(os.Environ(), "DATABASE_URL="+database)
	command.Stderr = os.Stderr
	return command.Output()
}

// judge looks at what is in the tables.
func judge(ctx context.Context, conn *pgx.Conn) error {
	var got string
	if err := conn.QueryRow(ctx, leftovers).Scan(&got); err != nil {
		return err
	}
	if got != wanted {
		return fmt.Errorf("the program left %s, want %s", got, wanted)
	}
	return nil
}
