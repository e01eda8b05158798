package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/plural"
)

// listLimit is how many lines a list has, unless it is asked for more.
const listLimit = 100

// filterFlags adds the flags that choose messages. Arguments are ids.
func filterFlags(cmd *cobra.Command, limit int) *operate.Filter {
	f := &operate.Filter{}
	flags := cmd.Flags()
	flags.StringVar(&f.Key, "key", "", "only the message with this `key`")
	flags.StringVar(&f.Queue, "queue", "", "only messages of this `queue`")
	flags.StringVar(&f.Reason, "reason", "", "only messages with this `reason`")
	flags.DurationVar(&f.OlderThan, "older-than", 0, "only those that are here for at least this `duration`, such as 90m")
	flags.DurationVar(&f.NewerThan, "newer-than", 0, "only those that are here for at most this `duration`")
	flags.IntVar(&f.Limit, "limit", limit, "at most `n` of them, by id; 0 for all")
	return f
}

// readFilter completes a filter with the arguments.
func readFilter(cmd *cobra.Command, f *operate.Filter, args []string) error {
	for _, arg := range args {
		id, err := messageID(cmd, arg)
		if err != nil {
			return err
		}
		f.IDs = append(f.IDs, id)
	}
	switch {
	case f.OlderThan < 0 || f.NewerThan < 0:
		return &usageError{cmd.CommandPath(), "a duration is negative"}
	case f.Limit < 0:
		return &usageError{cmd.CommandPath(), fmt.Sprintf("--limit is %d, want 0 or more", f.Limit)}
	}
	return nil
}

func messageID(cmd *cobra.Command, arg string) (int64, error) {
	id, err := strconv.ParseInt(arg, 10, 64)
	if err != nil {
		return 0, &usageError{cmd.CommandPath(), quote(arg) + " is no message id; a key goes into --key"}
	}
	return id, nil
}

// exactly asks for one argument, which is called name.
func exactly(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return &usageError{cmd.CommandPath(), fmt.Sprintf("want one argument, %s, got %d", name, len(args))}
		}
		return nil
	}
}

// yesFlag adds --yes to a verb that changes messages.
func yesFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("yes", false, "do it; without, more than one message is only counted")
}

// goAhead reports whether to act on n messages. A single one that was named
// needs no second thought.
func (p *program) goAhead(f *operate.Filter, n int, yes bool) bool {
	if n == 0 {
		return false
	}
	if yes || n == 1 && f.Named() {
		return true
	}
	fmt.Fprintln(p.out, "nothing was changed; with --yes it is done")
	return false
}

// counted writes a number of things that was counted up to a bound.
func counted(c operate.Count, one, many string) string {
	if c.AtLeast {
		return "at least " + plural.Of(c.Count, one, many)
	}
	return plural.Of(c.Count, one, many)
}
