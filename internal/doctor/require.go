package doctor

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// RightsError says that a role may not do what a relay does with every message: it
// would send messages and could not write down what became of them.
type RightsError struct {
	role string
	gap  gap
}

// Error implements error.
func (e *RightsError) Error() string {
	return "role " + e.role + " lacks rights that the relay uses: " + strings.Join(e.gap.missing, "; ")
}

// Hint is what the owner of the schema does about it.
func (e *RightsError) Hint() string {
	return "as the owner of the schema: " + strings.Join(e.gap.list, "; ") + "; `outbox-relay grants print` prints them all, and `outbox-relay doctor` looks (D28)"
}

// sqlRefused finds privileges that the role of a session has neither on a table nor
// on any column of it. There are none on columns to delete.
const sqlRefused = `
	select wanted.privilege
	from unnest($3::text[]) with ordinality wanted (privilege, place), pg_class c join pg_namespace n on n.oid = c.relnamespace
	where n.nspname = $1 and c.relname = $2 and not has_table_privilege(c.oid, wanted.privilege)
		and not case when wanted.privilege = 'delete' then false else has_any_column_privilege(c.oid, wanted.privilege) end
	order by wanted.place`

// RequireRights returns a [*RightsError] if the role of a session lacks one of the
// rights without which messages get no outcome, on a table that is there. A right on
// some of the columns is taken for enough: what is tried says more than this can.
func RequireRights(ctx context.Context, conn *pgx.Conn, schema string) error {
	var role string
	if err := conn.QueryRow(ctx, "select current_user::text").Scan(&role); err != nil {
		return err
	}
	p := &patient{cfg: Config{Schema: schema, Role: role}, conn: conn}
	e := &RightsError{role: ident(role)}
	for _, r := range rights {
		refused, err := p.refused(ctx, r)
		if err != nil {
			return err
		}
		if len(refused) > 0 {
			e.gap.add(strings.Join(refused, ", ")+" on "+r.object, r.grant(p, refused))
		}
	}
	if len(e.gap.missing) > 0 {
		return e
	}
	return nil
}

func (p *patient) refused(ctx context.Context, r right) ([]string, error) {
	if strings.Contains(r.object, "(") {
		return p.lacking(ctx, r)
	}
	rows, err := p.conn.Query(ctx, sqlRefused, p.cfg.Schema, r.object, r.privileges)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
