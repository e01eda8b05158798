package main

import (
	"errors"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/internal/demo"
)

func newDemo(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play the main job with a throwaway Postgres and a local queue",
		Long: "demo starts a throwaway Postgres, the emulator and a relay, and a small shop that sells. The queue\n" +
			"loses answers, the relay is killed with -9 twice. In the end there is an account of what was\n" +
			"committed, sent, consumed and recorded. The exit code is 0 only if it holds.\n\n" +
			"A Postgres server must be on the machine; OUTBOX_PG_BIN names the folder of its programs. Nothing\n" +
			"stays behind but, after an error, the logs.",
		Args: noArguments,
	}
	seconds := cmd.Flags().Int("seconds", 15, "how long the shop sells")
	seed := cmd.Flags().Uint64("seed", 0, "repeat the choices of a run; 0 takes new ones")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg := demo.Config{Load: time.Duration(*seconds) * time.Second, Seed: *seed, Talk: p.out, Live: isTerminal(p.out), Colour: p.colour()}
		if *asJSON {
			cfg.Talk, cfg.Live, cfg.Colour = p.err, isTerminal(p.err), false
		}
		for cfg.Seed == 0 {
			cfg.Seed = rand.Uint64N(1_000_000) // short, so that it can be typed
		}
		var err error
		if cfg.Program, err = os.Executable(); err != nil {
			return err
		}
		if err := cfg.Validate(); err != nil {
			return &usageError{cmd.CommandPath(), err.Error()}
		}
		account, err := demo.Run(cmd.Context(), cfg)
		return errors.Join(p.printAccount(account, *asJSON), err)
	}
	return cmd
}

func (p *program) printAccount(account *demo.Account, asJSON bool) error {
	switch {
	case account == nil:
		return nil
	case asJSON:
		return p.printJSON(account)
	}
	return account.Print(p.out, p.colour())
}
