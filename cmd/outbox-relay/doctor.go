package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/relay/poll"
)

func newDoctor(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what keeps the relay from its work, and how to mend it",
		Long: "doctor looks at the server, the schema, the publication, the slot and the queue as the relay\n" +
			"would use them, and prints the SQL or the setting that mends what it finds. It changes nothing\n" +
			"and publishes nothing. It exits with 13 if a check failed.",
		Args: noArguments,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		cfg, err := p.load(ctx, config.Replication)
		if err != nil {
			return err
		}
		// A person without the API key can still look at the database.
		_, queueErr := config.Load(ctx, p.environment(), config.Queue)
		var poll *poll.Config
		if cfg.Polls() {
			poll = &cfg.Poll
		}
		report := doctor.Run(ctx, doctor.Config{
			Poll: poll, Schema: cfg.Schema, Slot: cfg.CDC.Slot, Publication: cfg.CDC.Publication,
			Database: cfg.Database(), Replication: cfg.Replication(),
			Queue: cfg.Infrai, QueueSettings: queueErr,
		})
		if *asJSON {
			err = p.printJSON(report)
		} else {
			err = report.Print(p.out, p.colour())
		}
		if err == nil && report.Failed > 0 {
			err = &doctorError{report.Failed}
		}
		return err
	}
	return cmd
}

// doctorError says that checks failed; the report says which.
type doctorError struct{ failed int }

func (e *doctorError) Error() string {
	if e.failed == 1 {
		return "1 check failed"
	}
	return fmt.Sprintf("%d checks failed", e.failed)
}
