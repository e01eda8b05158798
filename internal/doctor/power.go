package doctor

import (
	"context"
	"strings"
)

// power looks for rights that the relay's role does not need. Whoever gets hold
// of its password gets hold of them.
func power(ctx context.Context, p *patient) (finding, error) {
	role := ident(p.role())
	var super, bypass, createRole, createDB bool
	err := p.conn.QueryRow(ctx, `
		select coalesce(bool_or(rolsuper), false), coalesce(bool_or(rolbypassrls), false),
			coalesce(bool_or(rolcreaterole), false), coalesce(bool_or(rolcreatedb), false)
		from pg_roles where rolname = $1`, p.role()).Scan(&super, &bypass, &createRole, &createDB)
	if err != nil {
		return finding{}, err
	}
	f := finding{
		status:  Warn,
		message: "role " + role + " may do much more than the relay needs",
		remedy:  "give the relay a role of its own: `outbox-relay grants print` prints it with its rights",
	}
	if super {
		f.observed = "role " + role + " is superuser"
		return f, nil
	}
	var has, without []string
	for _, r := range []struct {
		has  bool
		name string
	}{{bypass, "bypassrls"}, {createRole, "createrole"}, {createDB, "createdb"}} {
		if r.has {
			has, without = append(has, r.name), append(without, "no"+r.name)
		}
	}
	if len(has) == 0 {
		return pass("role " + role + " is an ordinary one"), nil
	}
	f.observed = "role " + role + " has " + strings.Join(has, ", ")
	f.remedy = "take it away, as an administrator, if nothing else needs it; " +
		"without BYPASSRLS the relay must see every row by other means if row security is on"
	f.sql = script("alter role " + role + " " + strings.Join(without, " "))
	return f, nil
}
