package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/schema"
)

func newMigrate(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create and update the schema",
		Args:  noArguments,
		RunE:  needVerb,
	}
	cmd.AddCommand(newMigrateUp(p), newMigrateStatus(p), newMigratePrint(p))
	return cmd
}

func schemaConfig(cfg *config.Config) schema.Config {
	return schema.Config{Schema: cfg.Schema, Publication: cfg.CDC.Publication}
}

func newMigrateUp(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "Apply the migrations that are missing",
		Long: "up applies the migrations that are missing, as the role of DATABASE_URL, which owns what it\n" +
			"makes and needs CREATE on the database. Applied twice, or by two at once, it does no harm.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := p.load(cmd.Context(), config.Database)
			if err != nil {
				return err
			}
			applied, err := schema.Migrate(cmd.Context(), cfg.Database(), schemaConfig(cfg), newLogger(cfg.Log, p.err))
			if err != nil {
				return err
			}
			for _, m := range applied {
				fmt.Fprintln(p.out, "applied", m.Name)
			}
			if len(applied) == 0 {
				fmt.Fprintf(p.out, "schema %s is up to date\n", quote(cfg.Schema))
			}
			return nil
		},
	}
}

func newMigrateStatus(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "List applied and pending migrations",
		Long:  "status lists the migrations, and exits with 10 if one is pending.",
		Args:  noArguments,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := p.load(cmd.Context(), config.Database)
		if err != nil {
			return err
		}
		migrations, err := schema.Status(cmd.Context(), cfg.Database(), schemaConfig(cfg))
		if err != nil {
			return err
		}
		if *asJSON {
			err = p.printJSON(migrationList{SchemaVersion: 1, Schema: cfg.Schema, Migrations: migrations})
		} else {
			err = p.printMigrations(migrations)
		}
		if err != nil {
			return err
		}
		return pending(cfg.Schema, migrations)
	}
	return cmd
}

// migrationList is the JSON of migrate status.
type migrationList struct {
	SchemaVersion int                `json:"schema_version"`
	Schema        string             `json:"schema"`
	Migrations    []schema.Migration `json:"migrations"`
}

func (p *program) printMigrations(migrations []schema.Migration) error {
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	for _, m := range migrations {
		name, applied := m.Name, "pending"
		if name == "" {
			name = "(of a newer program)"
		}
		if !m.AppliedAt.IsZero() {
			applied = "applied " + m.AppliedAt.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(table, "%d\t%s\t%s\n", m.Version, name, applied)
	}
	return table.Flush()
}

// pending returns the error that stands for exit code 10 if a migration is
// missing.
func pending(name string, migrations []schema.Migration) error {
	var have int64
	missing := false
	for _, m := range migrations {
		if m.AppliedAt.IsZero() {
			missing = true
		} else {
			have = max(have, m.Version)
		}
	}
	if !missing {
		return nil
	}
	return &schema.VersionError{Schema: name, Have: have, Want: schema.Version}
}

func newMigratePrint(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the migrations as SQL, for applying them by hand",
		Args:  noArguments,
	}
	after := cmd.Flags().Int64("after", 0, "leave out the migrations up to this `version`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := p.load(cmd.Context(), names)
		if err != nil {
			return err
		}
		if *after < 0 || *after > schema.Version {
			return &usageError{cmd.CommandPath(), fmt.Sprintf("--after is %d, want 0 to %d", *after, schema.Version)}
		}
		return schema.PrintAfter(p.out, schemaConfig(cfg), *after)
	}
	return cmd
}
