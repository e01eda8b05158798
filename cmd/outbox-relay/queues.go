package main

import (
	"context"
	"fmt"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/plural"
)

func newQueues(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queues",
		Short: "Show and change the settings of single queues",
		Long: "queues works with the table queues, which a running relay reads every two seconds. A queue\n" +
			"without a row there has the relay's own settings. provision creates queues at Infrai.",
		Args: noArguments,
		RunE: needVerb,
	}
	cmd.AddCommand(newQueuesList(p), newQueuesShow(p), newQueuesSet(p), newQueuesPause(p), newQueuesResume(p), newQueuesProvision(p))
	return cmd
}

// queueList is the JSON of queues list.
type queueList struct {
	SchemaVersion int             `json:"schema_version"`
	Queues        []operate.Queue `json:"queues"`
}

func newQueuesList(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the queues that have settings or deferred messages",
		Args:  noArguments,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		list := queueList{SchemaVersion: 1}
		err := p.operate(cmd, func(ctx context.Context, o *operate.Operator) (err error) {
			list.Queues, err = o.Queues(ctx)
			return err
		})
		switch {
		case err != nil:
			return err
		case *asJSON:
			return p.printJSON(list)
		}
		return p.printQueues(list.Queues)
	}
	return cmd
}

func (p *program) printQueues(queues []operate.Queue) error {
	n := int64(len(queues))
	fmt.Fprintf(p.out, "%s settings or deferred messages\n", plural.Of(n, "queue has", "queues have"))
	if n == 0 {
		return nil
	}
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "QUEUE\tPAUSED\tORDERING\tMAX IN FLIGHT\tRATE/S\tMAX ATTEMPTS\tON DEAD LETTER\tENVELOPE\tDEFERRED\tPAUSE")
	for _, q := range queues {
		fmt.Fprintf(table, "%s\t%t\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", quoteOdd(q.Queue), q.Paused, q.Ordering, orDefault(q.MaxInFlight),
			orUnbounded(q.RatePerSecond), orDefault(q.MaxAttempts), q.OnDeadLetter, q.Envelope, deferredCount(q.Deferred), pauseNote(&q))
	}
	return table.Flush()
}

// queueDocument is the JSON of queues show.
type queueDocument struct {
	SchemaVersion int `json:"schema_version"`
	operate.Queue
}

func newQueuesShow(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show QUEUE",
		Short: "Show the settings of one queue",
		Args:  exactly("a queue"),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return p.operate(cmd, func(ctx context.Context, o *operate.Operator) error {
			q, err := o.Queue(ctx, args[0])
			switch {
			case err != nil:
				return err
			case *asJSON:
				return p.printJSON(queueDocument{1, *q})
			}
			return p.printQueue(q)
		})
	}
	return cmd
}

func (p *program) printQueue(q *operate.Queue) error {
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "queue\t%s\n", quoteOdd(q.Queue))
	fmt.Fprintf(table, "paused\t%s\n", pauseOf(q))
	fmt.Fprintf(table, "ordering\t%s\n", q.Ordering)
	fmt.Fprintf(table, "max_in_flight\t%s\n", orDefault(q.MaxInFlight))
	fmt.Fprintf(table, "rate_per_second\t%s\n", orUnbounded(q.RatePerSecond))
	fmt.Fprintf(table, "max_attempts\t%s\n", orDefault(q.MaxAttempts))
	fmt.Fprintf(table, "on_dead_letter\t%s\n", q.OnDeadLetter)
	fmt.Fprintf(table, "envelope\t%s\n", envelope(q))
	fmt.Fprintf(table, "deferred\t%s\n", deferredCount(q.Deferred))
	return table.Flush()
}

func newQueuesSet(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "set QUEUE NAME=VALUE...",
		Short: "Change settings of one queue",
		Long: "set changes settings of one queue and leaves its others as they are:\n\n" +
			"  paused=true|false             whether its messages wait in the table\n" +
			"  ordering=key|queue            what arrives in commit order: each ordering key, or all of it\n" +
			"  max_in_flight=N|default       requests to it at once, instead of RELAY_MAX_IN_FLIGHT_PER_QUEUE\n" +
			"  rate_per_second=N|default     requests to it in a second; default is no bound\n" +
			"  max_attempts=N|default        failures until a dead letter, instead of RELAY_MAX_ATTEMPTS\n" +
			"  on_dead_letter=continue|hold  whether the lane of a dead letter waits for a person\n" +
			"  envelope=none|cloudevents     what a consumer gets: the payload, or an event with it as its data\n\n" +
			"A message keeps the envelope that it had when it was written: a change holds for those that are\n" +
			"written from now on.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return &usageError{cmd.CommandPath(), "want a queue and at least one NAME=VALUE"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			settings, err := operate.ParseSettings(args[1:])
			if err != nil {
				return &usageError{cmd.CommandPath(), err.Error()}
			}
			return p.changeQueue(cmd, args[0], func(ctx context.Context, o *operate.Operator) error {
				return o.Set(ctx, args[0], settings)
			})
		},
	}
}

func newQueuesPause(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pause QUEUE",
		Short: "Stop sending to a queue",
		Long: "pause stops sending to a queue. Requests that are under way end; its messages wait in the\n" +
			"table, in order, so the slot moves on. When it was paused, and by which role, is noted, and\n" +
			"shown with the reason wherever the queue is. A pause that lasts keeps its beginning; who gives\n" +
			"another reason for it takes it over.",
		Args: exactly("a queue"),
	}
	why := cmd.Flags().String("why", "", "one line of `text` for whoever looks later, with your name if others use the same role")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return p.changeQueue(cmd, args[0], func(ctx context.Context, o *operate.Operator) error {
			was, err := o.PauseQueue(ctx, args[0], operate.Pause{Reason: *why})
			if was != nil {
				fmt.Fprintln(p.out, "was paused already "+was.Told(moment))
			}
			return err
		})
	}
	return cmd
}

func newQueuesResume(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "resume QUEUE",
		Short: "Send to a queue again",
		Args:  exactly("a queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.changeQueue(cmd, args[0], func(ctx context.Context, o *operate.Operator) error {
				was, err := o.ResumeQueue(ctx, args[0])
				switch {
				case err != nil:
				case was == nil:
					fmt.Fprintln(p.out, "was not paused")
				default:
					fmt.Fprintln(p.out, "was paused "+was.Told(moment))
				}
				return err
			})
		},
	}
}

// changeQueue changes settings of a queue and says what follows from them.
func (p *program) changeQueue(cmd *cobra.Command, name string, change func(context.Context, *operate.Operator) error) error {
	var q *operate.Queue
	err := p.operate(cmd, func(ctx context.Context, o *operate.Operator) (err error) {
		if err = change(ctx, o); err != nil {
			return err
		}
		q, err = o.Queue(ctx, name)
		return err
	})
	if err != nil {
		return err
	}
	if err := p.printQueue(q); err != nil {
		return err
	}
	fmt.Fprintln(p.out, "a running relay "+consequence(q)+" within 2 seconds")
	return nil
}

// consequence is what the relay does about a queue with these settings.
func consequence(q *operate.Queue) string {
	if q.Paused {
		return "stops sending to it, and keeps its messages in the table,"
	}
	if q.Deferred.Count > 0 {
		return "goes by this, and sends what is deferred, in order,"
	}
	return "goes by this"
}

// pauseNote tells since when a queue is paused, by whom and why.
func pauseNote(q *operate.Queue) string {
	if !q.Paused {
		return "-"
	}
	return q.Told(moment)
}

// pauseOf tells whether a queue is paused, since when, by whom and why.
func pauseOf(q *operate.Queue) string {
	if !q.Paused {
		return "false"
	}
	return "true, " + pauseNote(q)
}

// envelope tells since when a queue has its envelope.
func envelope(q *operate.Queue) string {
	switch {
	case q.EnvelopePending:
		return q.Envelope + ", no relay has seen that yet"
	case q.EnvelopeFrom != nil:
		return fmt.Sprintf("%s, from message %d on", q.Envelope, *q.EnvelopeFrom)
	}
	return q.Envelope
}

func orDefault(n *int) string {
	if n == nil {
		return "default"
	}
	return strconv.Itoa(*n)
}

func orUnbounded(n *float64) string {
	if n == nil {
		return "no bound"
	}
	return strconv.FormatFloat(*n, 'g', -1, 64)
}

func deferredCount(c operate.Count) string {
	if c.AtLeast {
		return fmt.Sprintf("at least %d", c.Count)
	}
	return strconv.FormatInt(c.Count, 10)
}

// quoteOdd quotes a name only where that makes a difference.
func quoteOdd(name string) string {
	if quoted := quote(name); quoted != `"`+name+`"` || name == "" {
		return quoted
	}
	return name
}
