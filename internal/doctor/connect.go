package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

const (
	connectTimeout = 10 * time.Second
	closeTimeout   = 2 * time.Second
)

// connectSQL opens the connection of the checks. It asks for nothing that a
// pooler would refuse.
func (p *patient) connectSQL(ctx context.Context) (*pgx.Conn, error) {
	config := p.cfg.Database.Copy()
	config.ConnectTimeout = connectTimeout
	config.RuntimeParams["application_name"] = "outbox-relay doctor"
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	// A check that takes too long ends on the server as well, and the next one has
	// its connection. A statement_timeout would be a setting that poolers refuse.
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: closeTimeout}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pgtext.PinPath(ctx, conn); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// identity is what a walsender says of its server.
type identity struct{ system, timeline string }

// openStream asks a walsender who it is, once for all checks.
func (p *patient) openStream(ctx context.Context) (*identity, error) {
	if !p.asked {
		p.stream, p.streamErr = identify(ctx, p.cfg.Replication)
		p.asked = true
	}
	return p.stream, p.streamErr
}

func identify(ctx context.Context, base *pgx.ConnConfig) (*identity, error) {
	config := base.Config.Copy()
	config.ConnectTimeout = connectTimeout
	config.RuntimeParams["application_name"] = "outbox-relay doctor"
	config.RuntimeParams["replication"] = "database"
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	results, err := conn.Exec(ctx, "IDENTIFY_SYSTEM").ReadAll()
	if err != nil {
		return nil, err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) < 2 {
		return nil, errors.New("unexpected answer to IDENTIFY_SYSTEM")
	}
	row := results[0].Rows[0]
	return &identity{system: string(row[0]), timeline: string(row[1])}, nil
}

// refusal explains why a connection could not be opened, as far as the server
// said so.
func refusal(config *pgx.ConnConfig, err error) finding {
	f := finding{status: Fail, observed: oneLine(err), message: "cannot connect to " + address(config)}
	user, database := config.User, config.Database
	if pgtext.NoLogin(err) {
		f.message = "there is no role " + ident(user) + ", or it may not log in"
		f.remedy = "name another role; or, as an administrator, make it (`outbox-relay grants print --part roles` prints how), or let it log in"
		f.sql = script("alter role " + ident(user) + " login")
		return f
	}
	switch pgtext.SQLState(err) {
	case "28000":
		f.message = "pg_hba.conf does not let role " + ident(user) + " in"
		f.remedy = "add a line for the database, not for the word replication, to pg_hba.conf and reload: hostssl " +
			hbaName(database) + " " + hbaName(user) + " <address of the relay>/32 scram-sha-256"
	case "28P01":
		f.message = "the server does not accept the password of role " + ident(user) + ", or has no such role, which it does not tell"
		f.remedy = "give the relay the right password; `select rolcanlogin from pg_roles where rolname = " + literal(user) + "` says whether the role is there"
	case "3D000":
		f.message = "there is no database " + ident(database)
		f.remedy = "name the database that holds the outbox"
	case "42501":
		f.message = "role " + ident(user) + " may not connect to database " + ident(database)
		f.remedy = "let it, as the owner of the database"
		f.sql, f.safe = script("grant connect on database "+ident(database)+" to "+ident(user)), true
	case "53300":
		f.message = "the server has no connection left"
		f.remedy = "close others, or raise max_connections (or, for replication, max_wal_senders) and restart the server"
	case "57P03":
		f.message = "the server is starting up or shutting down"
		f.remedy = "wait and look again"
	default:
		f.remedy = "check host, port and network; is the server running?"
	}
	return f
}

// hbaName quotes a name the way pg_hba.conf wants it.
func hbaName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// address names a server without its secrets.
func address(config *pgx.ConnConfig) string {
	return fmt.Sprintf("%s as %s, database %s",
		net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))), ident(config.User), ident(config.Database))
}

// oneLine is the text of an error: what the server said where it said something,
// and never more than one line.
func oneLine(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Message + " (SQLSTATE " + pgErr.Code + ")"
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("no answer in time")
	}
	return pgtext.OneLine(err)
}
