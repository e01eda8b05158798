package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/sethvargo/go-envconfig"
	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/config"
)

// streams are the process's own: data goes to out, talk and logs to err.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// run is the whole program without the process around it: environ is like that
// of os.Environ. What run returns becomes the exit code.
func run(ctx context.Context, args, environ []string, std streams) error {
	root := newRoot(&program{streams: std, environ: environ})
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

// program is what every verb works with.
type program struct {
	streams
	environ []string
}

// environment looks variables up.
func (p *program) environment() envconfig.Lookuper {
	values := make(map[string]string, len(p.environ))
	for _, entry := range p.environ {
		name, value, _ := strings.Cut(entry, "=")
		values[name] = value
	}
	return envconfig.MapLookuper(values)
}

// load reads the settings of a verb, and says which variables look like
// misspelled ones.
func (p *program) load(ctx context.Context, parts ...config.Part) (*config.Config, error) {
	p.tellUnknown()
	return config.Load(ctx, p.environment(), parts...)
}

func (p *program) tellUnknown() {
	for _, u := range config.FindUnknown(p.environ) {
		fmt.Fprintln(p.err, "outbox-relay:", u)
	}
}

// newRoot returns the command line: one line per verb.
func newRoot(p *program) *cobra.Command {
	root := &cobra.Command{
		Use:   "outbox-relay",
		Short: "Publish committed outbox rows to the Infrai queue",
		Long: "outbox-relay tails the outbox table by logical replication and publishes each committed\n" +
			"message to the Infrai queue, at least once and with one key.\n\n" +
			"Settings come from the environment: DATABASE_URL, INFRAI_API_KEY and the names in\n" +
			"docs/configuration.md. They never come from flags.\n\n" + exitCodeHelp(),
		Args: noArguments,
		RunE: showHelp,
		// One place prints errors, and a wrong setting is no reason to show
		// the usage of a verb.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(
		newBench(p),
		newRun(p),
		newMigrate(p),
		newGrants(p),
		newDoctor(p),
		newStatus(p),
		newExplain(p),
		newVerify(p),
		newHealth(p),
		newDeadLetters(p),
		newDeferred(p),
		newQueues(p),
		newInfrai(p),
		newSlot(p),
		newAdopt(p),
		newEmulator(p),
		newDemo(p),
		newVersion(p),
	)
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &usageError{cmd.CommandPath(), err.Error()} })
	root.CompletionOptions.HiddenDefaultCmd = true
	return root
}

// showHelp is what the program does without a verb.
func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// needVerb is what a command does that only groups verbs. A script that forgets
// the verb must not believe that something was done.
func needVerb(cmd *cobra.Command, _ []string) error {
	var verbs []string
	for _, sub := range cmd.Commands() {
		verbs = append(verbs, sub.Name())
	}
	return &usageError{cmd.CommandPath(), cmd.Name() + " needs a verb: " + strings.Join(verbs, ", ")}
}

// noArguments refuses arguments. For a group of verbs the first one is a verb
// that does not exist.
func noArguments(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case !cmd.HasAvailableSubCommands():
		return &usageError{cmd.CommandPath(), "unexpected argument " + quote(args[0])}
	}
	cmd.SuggestionsMinimumDistance = 2 // what cobra uses when it looks for verbs itself
	text := "unknown command " + quote(args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return &usageError{cmd.CommandPath(), text}
}
