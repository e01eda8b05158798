package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/plural"
)

// doctorFlags are the choices of doctor.
type doctorFlags struct {
	json, apply, yes, strict bool
	role                     string
}

func newDoctor(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what keeps the relay from its work, and how to mend it",
		Long: "doctor looks at the server, the schema, the publication, the slot and the queue as the relay\n" +
			"would use them, and prints the SQL or the setting that mends what it finds. It changes nothing\n" +
			"and publishes nothing. It exits with 13 if a check failed.\n\n" +
			"With --apply it lists the repairs whose SQL takes nothing away (rights, indexes, the publication,\n" +
			"settings of roles and tables), and with --yes it runs them as the role of DATABASE_URL and looks\n" +
			"again. It never drops a slot, removes a row, or changes a setting of the server. To mend as the\n" +
			"owner or an administrator, name the relay's role with --role.\n\n" +
			"With --strict a warning is a fault, too.",
		Args: noArguments,
	}
	var f doctorFlags
	flags := cmd.Flags()
	flags.BoolVar(&f.json, "json", false, "print JSON")
	flags.BoolVar(&f.apply, "apply", false, "list the repairs that are safe to run")
	flags.BoolVar(&f.yes, "yes", false, "with --apply: run them")
	flags.BoolVar(&f.strict, "strict", false, "exit with 13 also for a warning")
	flags.StringVar(&f.role, "role", "", "look up the rights of this `role` instead of those of the connection")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.yes && !f.apply {
			return &usageError{cmd.CommandPath(), "--yes goes with --apply"}
		}
		ctx := cmd.Context()
		cfg, err := p.load(ctx, config.Replication)
		if err != nil {
			return err
		}
		if f.apply {
			return p.applyRepairs(ctx, cfg, &f)
		}
		report := p.examine(ctx, cfg, f.role)
		if err := p.printReport(report, f.json); err != nil {
			return err
		}
		return failedChecks(report, f.strict)
	}
	return cmd
}

// examine looks with the settings of the relay.
func (p *program) examine(ctx context.Context, cfg *config.Config, role string) *doctor.Report {
	visit := doctorConfig(cfg)
	visit.Role = role
	// A person without the API key can still look at the database.
	_, visit.QueueSettings = config.Load(ctx, p.environment(), config.Queue)
	return doctor.Run(ctx, visit)
}

// doctorConfig says where the relay with these settings does its work.
func doctorConfig(cfg *config.Config) doctor.Config {
	visit := doctor.Config{
		Schema: cfg.Schema, Slot: cfg.CDC.Slot, Publication: cfg.CDC.Publication,
		Database: cfg.Database(), Replication: cfg.Replication(), Queue: cfg.Infrai,
		Buttons: cfg.Admin.Changes(), SenderTimeout: cfg.CDC.WALSenderTimeout,
	}
	if cfg.Polls() {
		visit.Poll = &cfg.Poll
	}
	return visit
}

func (p *program) printReport(report *doctor.Report, asJSON bool) error {
	if asJSON {
		return p.printJSON(report)
	}
	return report.Print(p.out, p.colour())
}

// failedChecks is the error of a report in which checks failed, or warn if that is
// to count.
func failedChecks(report *doctor.Report, strict bool) error {
	switch {
	case report.Failed > 0:
		return &doctorError{failed: report.Failed}
	case strict && report.Warnings > 0:
		return &doctorError{warnings: report.Warnings}
	}
	return nil
}

// treatment is the JSON of doctor --apply.
type treatment struct {
	SchemaVersion int `json:"schema_version"`
	// Applied says that the repairs were run.
	Applied bool            `json:"applied"`
	Repairs []doctor.Repair `json:"repairs"`
	// Report is what the doctor found, after the repairs if they were run.
	Report *doctor.Report `json:"report"`
}

// applyRepairs lists the safe repairs, or runs them and looks again.
func (p *program) applyRepairs(ctx context.Context, cfg *config.Config, f *doctorFlags) error {
	t := treatment{SchemaVersion: 1, Report: p.examine(ctx, cfg, f.role)}
	t.Repairs = t.Report.Repairs()
	if f.yes && len(t.Repairs) > 0 {
		database := cdc.Primary(ctx, cfg.Database(), cfg.CDC.ConnectTimeout)
		if err := doctor.Apply(ctx, database, t.Repairs, newLogger(cfg.Log, p.err)); err != nil {
			return err
		}
		t.Applied, t.Report = true, p.examine(ctx, cfg, f.role)
	}
	if err := p.printTreatment(&t, f.json); err != nil {
		return err
	}
	for i := range t.Repairs {
		if t.Repairs[i].Error != "" {
			return &repairError{t.Repairs[i].ID}
		}
	}
	return failedChecks(t.Report, f.strict)
}

func (p *program) printTreatment(t *treatment, asJSON bool) error {
	if asJSON {
		return p.printJSON(t)
	}
	for i := range t.Repairs {
		r := &t.Repairs[i]
		fmt.Fprintf(p.out, "%s  %s\n", r.ID, r.Title)
		for n, sql := range r.Statements {
			fmt.Fprintf(p.out, "  %s%s;\n", statementMark(t.Applied, r, n), sql)
		}
		if r.Error != "" {
			fmt.Fprintln(p.out, "  "+r.Error)
		}
	}
	switch {
	case len(t.Repairs) == 0:
		fmt.Fprintln(p.out, "no fault that is safe to mend by SQL")
	case !t.Applied:
		fmt.Fprintln(p.out, "nothing was changed; with --yes it is done")
		return nil
	}
	fmt.Fprintln(p.out)
	return t.Report.Print(p.out, p.colour())
}

// statementMark says what became of the n-th statement of a repair.
func statementMark(applied bool, r *doctor.Repair, n int) string {
	switch {
	case !applied:
		return ""
	case n < r.Done:
		return "done    "
	case n == r.Done:
		return "failed  "
	}
	return "not run "
}

// doctorError says that checks failed, or that they warn; the report says which.
type doctorError struct{ failed, warnings int }

func (e *doctorError) Error() string {
	if e.failed == 0 {
		return plural.Of(e.warnings, "check warns", "checks warn")
	}
	return plural.Of(e.failed, "check failed", "checks failed")
}

// repairError says that a repair could not be made; the list says why.
type repairError struct{ check string }

func (e *repairError) Error() string { return "the repair of " + e.check + " failed" }
