package schema

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/template"
)

//go:embed grants_roles.sql
var grantsRoles string

//go:embed grants_rights.sql
var grantsRights string

// The names that the roles have unless somebody chose others.
const (
	DefaultOwner       = "outbox_owner"
	DefaultApplication = "outbox_app"
	DefaultRelay       = "outbox_relay"
	DefaultMonitoring  = "outbox_monitor"
	DefaultOperator    = "outbox_operator"
)

// The parts of what [Grants] prints.
const (
	// PartRoles makes the roles and comes before the first migration.
	PartRoles = "roles"
	// PartRights comes after every migration.
	PartRights = "rights"
)

// GrantsConfig names the roles and what they get rights on. Names are taken as
// they are and quoted.
type GrantsConfig struct {
	// Schema is the schema of the outbox.
	Schema string
	// Database is the name of its database.
	Database string

	// Owner applies the migrations and owns what they make. Application is for
	// granting to the roles of applications, Operator to those of people. Relay and
	// Monitoring log in. A role without a name is left out; one that exists is used
	// as it is.
	Owner, Application, Relay, Monitoring, Operator string

	// Vendor is how the relay's role gets the right to replicate: empty for the
	// role attribute, "rds" for the role that stands for it on Amazon RDS and
	// Aurora.
	Vendor string
	// Poll leaves the right to replicate out: the relay polls the table.
	Poll bool
	// Part is [PartRoles] or [PartRights], or empty for both.
	Part string
}

// Validate reports everything that is wrong.
func (c GrantsConfig) Validate() error {
	errs := []error{validateName("schema", c.Schema), validateName("database", c.Database)}
	for _, r := range c.roles() {
		errs = append(errs, validateName("role", r.Name))
		// It ends the block that makes the role.
		if strings.Contains(r.Name, "$role$") {
			errs = append(errs, fmt.Errorf("name of the role is %q: want one without $role$", r.Name))
		}
	}
	if c.Vendor != "" && c.Vendor != "rds" {
		errs = append(errs, fmt.Errorf(`vendor is %q: want "rds" or none`, c.Vendor))
	}
	if c.Part != "" && c.Part != PartRoles && c.Part != PartRights {
		errs = append(errs, fmt.Errorf("part is %q: want %q, %q or none", c.Part, PartRoles, PartRights))
	}
	return errors.Join(errs...)
}

// newRole is a role as the SQL needs it.
type newRole struct{ Name, Role, Login string }

func (c GrantsConfig) roles() []newRole {
	var roles []newRole
	for _, r := range []struct{ name, login string }{
		{c.Owner, "nologin"}, {c.Application, "nologin"}, {c.Relay, "login"}, {c.Monitoring, "login"}, {c.Operator, "nologin"},
	} {
		if r.name != "" {
			roles = append(roles, newRole{Name: r.name, Role: quote(r.name), Login: r.login})
		}
	}
	return roles
}

// Grants writes the SQL that makes the roles and gives each the rights for its
// job and no others. All of it may be applied again.
func Grants(w io.Writer, cfg GrantsConfig) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	out := &printer{w: w}
	out.printf("-- Outbox Relay: roles and rights for the schema %s. May be applied again.\n", quote(cfg.Schema))
	if cfg.Part != PartRights {
		out.printf("%s", cfg.render(grantsRoles))
	}
	if cfg.Part != PartRoles {
		out.printf("%s", cfg.render(grantsRights))
	}
	return out.err
}

// render puts the quoted names into the SQL.
func (c GrantsConfig) render(text string) string {
	quoteOptional := func(name string) string {
		if name == "" {
			return ""
		}
		return quote(name)
	}
	names := struct {
		Schema, Database, Owner, Application, Relay, Monitoring, Operator, Vendor string

		Poll bool
		New  []newRole
	}{
		quote(c.Schema), quote(c.Database),
		quoteOptional(c.Owner), quoteOptional(c.Application), quoteOptional(c.Relay), quoteOptional(c.Monitoring), quoteOptional(c.Operator), c.Vendor,
		c.Poll, c.roles(),
	}
	var rendered strings.Builder
	parsed := template.Must(template.New("grants").Funcs(template.FuncMap{"literal": literal}).Parse(text))
	if err := parsed.Execute(&rendered, names); err != nil {
		panic(err)
	}
	return rendered.String()
}

// literal makes a string of SQL that means the same whatever the session's
// standard_conforming_strings says.
func literal(text string) string {
	quoted := "'" + strings.ReplaceAll(text, "'", "''") + "'"
	if strings.Contains(text, `\`) {
		return "E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}
