package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// right is what a role may do with one of our tables or functions.
type right struct {
	object     string
	privileges []string
}

// grant is the statement that gives some of the privileges.
func (r right) grant(p *patient, privileges []string) string {
	object := p.table(r.object)
	if strings.Contains(r.object, "(") {
		object = "function " + p.function(r.object)
	}
	return "grant " + strings.Join(privileges, ", ") + " on " + object + " to " + ident(p.role())
}

// rights are what the relay uses.
var rights = []right{
	{"schema_version", []string{"select"}},
	{"messages", []string{"select"}},
	{"dispatched", []string{"select", "insert"}},
	{"deferred", []string{"select", "insert", "update", "delete"}},
	{"dead_letters", []string{"select", "insert"}},
	{"withdrawn", []string{"select", "insert"}},
	{"queues", []string{"select"}},
	{"envelopes", []string{"select", "insert", "update", "delete"}},
	{"relays", []string{"select", "insert", "update"}},
	{"record_position(text, bigint, pg_lsn)", []string{"execute"}},
}

// upkeepRights are what retention, a short sweep and the status use. Messages go
// out without them.
var upkeepRights = []right{
	{"messages_id_seq", []string{"select"}},
	{"message_status", []string{"select"}},
	{"messages", []string{"delete"}},
	{"dispatched", []string{"delete"}},
	{"dead_letters", []string{"update", "delete"}},
	{"withdrawn", []string{"delete"}},
	{"claims", []string{"delete"}},
}

// buttonRights are what the page uses to pause and resume a queue: a privilege on
// columns of the table queues. A role that may do it on the whole table has them.
var buttonRights = []struct {
	privilege string
	columns   []string
}{
	{"insert", []string{"queue", "paused", "paused_by", "paused_reason"}},
	{"update", []string{"paused", "paused_by", "paused_reason"}},
}

// function quotes a function that is written with its argument types.
func (p *patient) function(signature string) string {
	name, arguments, _ := strings.Cut(signature, "(")
	return p.table(name) + "(" + arguments
}

// grants asks for every right that the relay uses on what there is.
func grants(ctx context.Context, p *patient) (finding, error) {
	role, name := ident(p.role()), ident(p.cfg.Schema)
	var usage bool
	err := p.conn.QueryRow(ctx,
		`select has_schema_privilege($2::name, oid, 'usage') from pg_namespace where nspname = $1`, p.cfg.Schema, p.role()).Scan(&usage)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return skip("there is no schema " + name + "; see D31"), nil
	case pgtext.SQLState(err) == "42704":
		return finding{
			status: Fail, observed: "no role " + role, message: "there is no role " + role,
			remedy: "`outbox-relay grants print --role-relay` prints what makes it",
		}, nil
	case err != nil:
		return finding{}, err
	}
	var needed, upkeep, buttons gap
	if !usage {
		needed.add("usage on schema "+name, "grant usage on schema "+name+" to "+role)
	}
	if err := p.compareRights(ctx, rights, &needed); err != nil {
		return finding{}, err
	}
	if err := p.compareRights(ctx, upkeepRights, &upkeep); err != nil {
		return finding{}, err
	}
	if err := p.compareButtons(ctx, &buttons); err != nil {
		return finding{}, err
	}
	return p.granted(needed, upkeep, buttons), nil
}

// gap is the rights that a role lacks, and the statements that give them.
type gap struct{ missing, list []string }

func (g *gap) add(missing, statement string) {
	g.missing, g.list = append(g.missing, missing), append(g.list, statement)
}

// granted is what it means to lack rights that messages need, others for upkeep, and
// those of the page's buttons, which matter where somebody may press them.
func (p *patient) granted(needed, upkeep, buttons gap) finding {
	role := "role " + ident(p.role())
	aside := ""
	if len(buttons.missing) > 0 && !p.cfg.Buttons {
		aside = ", but those for pause and resume on the page, whose buttons are off without RELAY_ADMIN_TOKEN_FILE"
		buttons = gap{}
	}
	f := finding{
		status: Warn, remedy: "as the owner of the schema; `outbox-relay grants print` prints them all", safe: true,
		observed: "missing: " + strings.Join(slices.Concat(needed.missing, upkeep.missing, buttons.missing), "; ") + aside,
		sql:      script(slices.Concat(needed.list, upkeep.list, buttons.list)...),
	}
	switch {
	case len(needed.missing) > 0:
		f.status, f.message = Fail, role+" lacks rights that the relay uses"
	case len(upkeep.missing) > 0:
		f.message = role + " lacks rights that retention or the status use: tables grow, or figures are missing"
	case len(buttons.missing) > 0:
		f.message = role + " lacks rights that the page uses: its buttons cannot pause or resume a queue"
	default:
		return pass(role + " has them all" + aside)
	}
	return f
}

// compareRights looks for each right on what there is, and adds those that lack.
func (p *patient) compareRights(ctx context.Context, wanted []right, g *gap) error {
	for _, r := range wanted {
		lacking, err := p.lacking(ctx, r)
		if err != nil {
			return err
		}
		if len(lacking) > 0 {
			g.add(strings.Join(lacking, ", ")+" on "+r.object, r.grant(p, lacking))
		}
	}
	return nil
}

// sqlColumns finds columns on which a role lacks a privilege. It asks for each
// column that is there.
const sqlColumns = `
	select a.attname::text from unnest($3::text[]) with ordinality wanted (name, place), pg_attribute a
		join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
	where n.nspname = $1 and c.relname = 'queues' and a.attname = wanted.name and a.attnum > 0 and not a.attisdropped
		and not has_column_privilege($4::name, c.oid, a.attnum, $2::text)
	order by wanted.place`

// compareButtons looks for the rights of the page's buttons.
func (p *patient) compareButtons(ctx context.Context, g *gap) error {
	for _, r := range buttonRights {
		rows, err := p.conn.Query(ctx, sqlColumns, p.cfg.Schema, r.privilege, r.columns, p.role())
		if err != nil {
			return err
		}
		lacking, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		if len(lacking) > 0 {
			what := r.privilege + " (" + strings.Join(lacking, ", ") + ") on "
			g.add(what+"queues", "grant "+what+p.table("queues")+" to "+ident(p.role()))
		}
	}
	return nil
}

// lacking are the privileges that the role has not, on an object that is there.
// The object is looked up in the catalog, because a name cannot be resolved
// without USAGE on its schema.
func (p *patient) lacking(ctx context.Context, r right) ([]string, error) {
	sql := `
		select privilege from unnest($3::text[]) privilege, pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = $1 and c.relname = $2 and not has_table_privilege($4::name, c.oid, privilege)`
	name, _, isFunction := strings.Cut(r.object, "(")
	if isFunction {
		sql = `
		select privilege from unnest($3::text[]) privilege, pg_proc p join pg_namespace n on n.oid = p.pronamespace
		where n.nspname = $1 and p.proname = $2 and not has_function_privilege($4::name, p.oid, privilege)`
	}
	rows, err := p.conn.Query(ctx, sql, p.cfg.Schema, name, r.privileges, p.role())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
