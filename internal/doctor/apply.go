package doctor

import (
	"context"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// lockWait bounds the wait of a repair for a lock: whoever comes after it waits as
// well.
const lockWait = "5s"

// Repair is the safe SQL of one check, and what came of it.
type Repair struct {
	ID         string   `json:"id"`
	Title      string   `json:"title"`
	Statements []string `json:"statements"`
	// Done is how many statements ran. After one that fails the rest of its check
	// is left out.
	Done int `json:"done"`
	// Error is why the next statement did not run, with what helps.
	Error string `json:"error"`
}

// Repairs are the faults that SQL can mend which takes nothing away, in the order
// in which to mend them.
func (r *Report) Repairs() []Repair {
	repairs := []Repair{}
	for i := range r.Checks {
		if c := &r.Checks[i]; c.Safe {
			repairs = append(repairs, Repair{ID: c.ID, Title: c.Title, Statements: c.statements})
		}
	}
	return repairs
}

// Apply runs repairs as the role of the connection, and writes down in the log
// each statement that it ran or could not run. A repair that fails does not keep
// the next one from being tried. An error means that nothing was run.
func Apply(ctx context.Context, database *pgx.ConnConfig, repairs []Repair, log *zap.Logger) error {
	config := database.Copy()
	config.ConnectTimeout = connectTimeout
	maps.Copy(config.RuntimeParams, map[string]string{
		"application_name": "outbox-relay doctor", "lock_timeout": lockWait, "default_transaction_read_only": "off",
		"search_path": "pg_catalog, pg_temp", // see pgtext.PinPath
	})
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect: %s; a pooler in between refuses the settings of the session: use the direct address", oneLine(err))
	}
	p := &patient{conn: conn}
	defer p.close()
	log = log.With(zap.String("role", config.User), zap.String("database", config.Database), zap.String("host", config.Host))
	for i := range repairs {
		repairs[i].apply(ctx, conn, log)
	}
	return nil
}

func (r *Repair) apply(ctx context.Context, conn *pgx.Conn, log *zap.Logger) {
	for _, sql := range r.Statements {
		fields := []zap.Field{zap.String("check", r.ID), zap.String("sql", sql)}
		// As psql does: no transaction around it, which some statements refuse.
		if err := conn.PgConn().Exec(ctx, sql).Close(); err != nil {
			r.Error = oneLine(err) + hint(pgtext.SQLState(err), conn.Config().User)
			log.Warn("repair failed", append(fields, zap.String("error", oneLine(err)))...)
			return
		}
		log.Info("repair applied", fields...)
		r.Done++
	}
}

// hint is what helps after an error, as far as its code says so.
func hint(code, role string) string {
	switch code {
	case "42501":
		return "; role " + ident(role) + " may not do this: set DATABASE_URL to the owner or administrator that the check names, " +
			"and name the relay's role with --role"
	case "55P03":
		return "; somebody holds the table for longer than " + lockWait + ": try again, and drop an index that was left invalid first"
	case "23505":
		return "; two rows have the same key: remove one first, and drop the index that was left invalid"
	}
	return ""
}
