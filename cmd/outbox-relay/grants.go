package main

import (
	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/schema"
)

func newGrants(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "grants",
		Short: "Roles and rights of the outbox",
		Args:  noArguments,
		RunE:  needVerb,
	}
	cmd.AddCommand(newGrantsPrint(p))
	return cmd
}

func newGrantsPrint(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the SQL that makes the roles and gives them their rights",
		Long: "print writes the SQL for five roles: the owner applies migrations, the application writes\n" +
			"messages, the relay publishes them, monitoring looks, operators decide. An empty name leaves a role out; a role\n" +
			"that exists is used as it is. With RELAY_MODE=poll the relay gets no right to replicate.\n" +
			"Nothing is executed.",
		Args: noArguments,
	}
	var g schema.GrantsConfig
	flags := cmd.Flags()
	flags.StringVar(&g.Owner, "role-owner", schema.DefaultOwner, "`role` that applies migrations")
	flags.StringVar(&g.Application, "role-app", schema.DefaultApplication, "`role` of applications")
	flags.StringVar(&g.Relay, "role-relay", schema.DefaultRelay, "`role` of the relay")
	flags.StringVar(&g.Monitoring, "role-monitor", schema.DefaultMonitoring, "`role` of monitoring")
	flags.StringVar(&g.Operator, "role-operator", schema.DefaultOperator, "`role` of operators")
	flags.StringVar(&g.Database, "database", "", "`name` of the database (default: that of DATABASE_URL)")
	flags.StringVar(&g.Vendor, "vendor", "", "rds: Amazon RDS and Aurora, where a membership stands for REPLICATION")
	flags.StringVar(&g.Part, "part", "", "roles: only what comes before the migrations; rights: only what comes after")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		part := names
		if g.Database == "" {
			part = config.Database
		}
		cfg, err := p.load(cmd.Context(), part)
		if err != nil {
			return err
		}
		g.Schema, g.Poll = cfg.Schema, cfg.Polls()
		if g.Database == "" {
			g.Database = cfg.Database().Database
		}
		if err := g.Validate(); err != nil {
			return &usageError{cmd.CommandPath(), err.Error()}
		}
		return schema.Grants(p.out, g)
	}
	return cmd
}
