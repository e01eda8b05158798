package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sethvargo/go-envconfig"
	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

func newEmulator(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "emulator",
		Short: "Serve a local Infrai queue for development",
		Long: "emulator serves a local Infrai queue, in memory, until it is stopped. Point INFRAI_BASE_URL\n" +
			"at it; any API key will do unless EMULATOR_API_KEY names one.\n\n" + switchHelp(),
		Args: noArguments,
	}
	listen := cmd.Flags().String("listen", "127.0.0.1:8090", "address to listen on")
	queues := cmd.Flags().StringSlice("queue", nil, "queue to create at the start; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var cfg struct {
			Emulator emulator.Config `env:", prefix=EMULATOR_"`
			Log      config.Log      `env:", prefix=RELAY_LOG_"`
		}
		for _, u := range config.FindUnknownOf(&cfg, "EMULATOR_", p.environ) {
			fmt.Fprintln(p.err, "outbox-relay:", u)
		}
		err := envconfig.ProcessWith(cmd.Context(), &envconfig.Config{Target: &cfg, Lookuper: p.environment()})
		if err == nil {
			cfg.Emulator.Queues = append(cfg.Emulator.Queues, *queues...)
			err = errors.Join(prefixed("EMULATOR_", cfg.Emulator.Validate()), prefixed("RELAY_LOG_", cfg.Log.Validate()))
		}
		if err != nil {
			return &usageError{cmd.CommandPath(), err.Error()}
		}
		return emulator.ListenAndServe(cmd.Context(), *listen, cfg.Emulator, newLogger(cfg.Log, p.err))
	}
	return cmd
}

// prefixed makes the names of settings, with which the lines of an error begin,
// those of variables.
func prefixed(prefix string, err error) error {
	if err == nil {
		return nil
	}
	return errors.New(prefix + strings.ReplaceAll(err.Error(), "\n", "\n"+prefix))
}

// switchHelp lists what can be set in the environment.
func switchHelp() string {
	var b strings.Builder
	b.WriteString("What the emulator assumes where nothing is known of the real queue, and how to change it (the\n" +
		"first value is the default):\n")
	for _, s := range emulator.Switches() {
		values := strings.Join(s.Values, " | ")
		if s.Values == nil {
			values = fmt.Sprintf("%s (up to %d)", s.Default, s.Max)
		}
		fmt.Fprintf(&b, "  %-32s %s\n", "EMULATOR_"+strings.ToUpper(s.Name), values)
	}
	return strings.TrimRight(b.String(), "\n")
}
