package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/bench"
)

func newBench(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the relay next to the limits of this machine",
		Long: "bench starts a throwaway Postgres and a sink on this machine, measures the relay side by side\n" +
			"with what the machine can do at all, and prints medians and ratios. It takes some minutes.\n\n" +
			"Measurements: " + strings.Join(bench.Names(), ", ") + ".",
		Args: noArguments,
	}
	cfg := bench.Config{Progress: p.err}
	cmd.Flags().IntVar(&cfg.Messages, "messages", 200_000, "messages in a backlog")
	cmd.Flags().IntVar(&cfg.Runs, "runs", 5, "runs of each comparison")
	cmd.Flags().DurationVar(&cfg.Latency, "latency-time", 10*time.Second, "time of a latency run")
	cmd.Flags().StringSliceVar(&cfg.Only, "only", nil, "measurements to make; all without it")
	cmd.Flags().StringVar(&cfg.PostgresVersion, "postgres", "", "major version of Postgres; any without it")
	log := config.Log{Level: zapcore.ErrorLevel, Format: "auto"}
	cmd.Flags().TextVar(&log.Level, "log-level", log.Level, "what to show of the relay's log")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg.Log = newLogger(log, p.err)
		report, err := bench.Run(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		if *asJSON {
			return p.printJSON(report)
		}
		return report.Print(p.out)
	}
	cmd.AddCommand(newBenchSink(p), newBenchEmulator(p))
	return cmd
}

// newBenchSink and newBenchEmulator serve what bench measures against, as
// processes of their own.
func newBenchSink(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "sink", Hidden: true, Args: noArguments}
	delay := cmd.Flags().Duration("delay", 0, "how long each request takes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return bench.ServeSink(cmd.Context(), *delay, p.out)
	}
	return cmd
}

func newBenchEmulator(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "emulator", Hidden: true, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.ServeEmulator(cmd.Context(), zap.NewNop(), p.out)
		},
	}
}
