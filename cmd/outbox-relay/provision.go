package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/internal/infraiadmin"
	"github.com/outbox-relay/outbox-relay/internal/plural"
)

// provision is what queues provision was asked for.
type provision struct {
	settings           infraiadmin.Settings
	retries, days      int
	visibility         int
	noDeadLetters, yes bool
}

func newQueuesProvision(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "provision QUEUE",
		Short: "Create a queue at Infrai, and its dead letter queue before it",
		Long: "provision looks at what the Infrai project has, shows what it would create, and creates it\n" +
			"with --yes: the dead letter queue first, because a queue can only name one that exists.\n" +
			"A queue that is there stays as it is; if its settings are others than wanted, nothing is\n" +
			"created at all. It needs the API key, and no database.",
		Args: exactly("a queue"),
	}
	want := &provision{}
	flags := cmd.Flags()
	flags.StringVar(&want.settings.Type, "type", "standard", "standard, or fifo for one order of the whole queue")
	flags.StringVar(&want.settings.DeadLetterQueue, "dead-letter-queue", "", "`queue` for the dead letters; QUEUE-dlq without this flag")
	flags.BoolVar(&want.noDeadLetters, "no-dead-letter-queue", false, "let messages come back until their retention ends")
	flags.IntVar(&want.retries, "max-retries", 0, "how often `n` a consumer may give a message back before it is a dead letter")
	flags.IntVar(&want.days, "retention-days", 0, "how many `days` messages are kept, up to 30")
	flags.IntVar(&want.visibility, "visibility-timeout", 0, "`seconds` for which a message is leased, unless its consumer says")
	flags.BoolVar(&want.settings.EnablePriority, "priority", false, "let messages have a priority")
	flags.BoolVar(&want.yes, "yes", false, "do it; without, it is only shown")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := want.complete(cmd, args[0]); err != nil {
			return err
		}
		return p.askInfrai(cmd, func(ctx context.Context, c *infraiadmin.Client) error {
			return p.provision(ctx, c, args[0], want, *asJSON)
		})
	}
	return cmd
}

// complete turns flags into settings. Those that were not given are left to the
// queue.
func (w *provision) complete(cmd *cobra.Command, queue string) error {
	given := cmd.Flags().Changed
	for flag, set := range map[string]func(){
		"max-retries":        func() { w.settings.MaxRetries = &w.retries },
		"retention-days":     func() { w.settings.RetentionDays = &w.days },
		"visibility-timeout": func() { w.settings.VisibilityTimeout = &w.visibility },
	} {
		if given(flag) {
			set()
		}
	}
	named := given("dead-letter-queue")
	switch {
	case named && (w.noDeadLetters || w.settings.DeadLetterQueue == ""):
		return &usageError{cmd.CommandPath(), "want --dead-letter-queue with a name, or --no-dead-letter-queue"}
	case !named && !w.noDeadLetters:
		w.settings.DeadLetterQueue = queue + "-dlq"
	}
	if err := w.settings.Validate(queue); err != nil {
		return &usageError{cmd.CommandPath(), err.Error()}
	}
	return nil
}

// provisionDocument is the JSON of queues provision.
type provisionDocument struct {
	SchemaVersion int    `json:"schema_version"`
	Host          string `json:"host"`
	// Applied tells whether the steps were to be done, not only shown.
	Applied bool               `json:"applied"`
	Steps   []infraiadmin.Step `json:"steps"`
}

func (p *program) provision(ctx context.Context, c *infraiadmin.Client, queue string, want *provision, asJSON bool) error {
	steps, err := c.Plan(ctx, queue, want.settings)
	if err != nil {
		return err
	}
	if !asJSON {
		if err := p.printPlan(c.Host(), steps); err != nil {
			return err
		}
	}
	if err = infraiadmin.Differences(steps); err == nil && want.yes {
		err = c.Provision(ctx, steps)
	}
	if asJSON {
		return errors.Join(p.printJSON(provisionDocument{1, c.Host(), want.yes, steps}), err)
	}
	p.printProvisioned(steps, want.yes, err)
	return err
}

func (p *program) printPlan(host string, steps []infraiadmin.Step) error {
	fmt.Fprintf(p.out, "queues at %s\n", host)
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	for _, s := range steps {
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Action, s.Queue, describe(s.Settings))
		for _, d := range s.Differences {
			fmt.Fprintf(table, "\t\t  %s\n", d)
		}
		if len(s.Untold) > 0 {
			fmt.Fprintf(table, "\t\t  the queue does not tell %s\n", strings.Join(s.Untold, ", "))
		}
	}
	return table.Flush()
}

// describe tells settings on one line.
func describe(s infraiadmin.Settings) string {
	texts := []string{s.Type}
	add := func(set bool, format string, value any) {
		if set {
			texts = append(texts, fmt.Sprintf(format, value))
		}
	}
	add(s.DeadLetterQueue != "", "dead letters go to %s", s.DeadLetterQueue)
	add(s.MaxRetries != nil, "%d retries", orZero(s.MaxRetries))
	add(s.RetentionDays != nil, "kept for %d days", orZero(s.RetentionDays))
	add(s.VisibilityTimeout != nil, "leased for %d s", orZero(s.VisibilityTimeout))
	if s.EnablePriority {
		texts = append(texts, "with priority")
	}
	return strings.Join(texts, ", ")
}

func orZero(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// printProvisioned tells what came of a plan.
func (p *program) printProvisioned(steps []infraiadmin.Step, yes bool, err error) {
	var created, missing int64
	for _, s := range steps {
		switch {
		case s.Created:
			created++
		case s.Action == infraiadmin.Create:
			missing++
		}
	}
	switch {
	case created > 0:
		fmt.Fprintf(p.out, "%s created\n", plural.Of(created, "queue was", "queues were"))
	case err != nil:
		fmt.Fprintln(p.out, "nothing was created")
	case missing == 0:
		fmt.Fprintln(p.out, "there was nothing to create")
	default:
		fmt.Fprintln(p.out, "nothing was created; with --yes it is done")
	}
	if last := steps[len(steps)-1]; yes && err == nil && last.Settings.Type == "fifo" {
		fmt.Fprintf(p.out, "so that the relay keeps the order of the whole queue: outbox-relay queues set %s ordering=queue\n", last.Queue)
	}
}
