package main

import (
	"bytes"
	"context"
	"os"
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
	cmd.AddCommand(newBenchOutage(p), newBenchClaims(p), newBenchEnqueue(p), newBenchSink(p), newBenchEmulator(p), newBenchQueue(p))
	return cmd
}

func newBenchOutage(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "outage",
		Short: "Let a queue die and come back while messages keep coming",
		Long: "outage starts a throwaway Postgres, a queue and a relay on this machine, commits messages at a fixed\n" +
			"rate, and lets the queue die: the first half of the time it answers 503, in the second it refuses\n" +
			"connections. Every second it looks at the WAL that the slot keeps, the deferred messages, the speed\n" +
			"and the memory of the relay. Then the queue comes back, and the drain is held against the speed of\n" +
			"the live path in the same run.\n\n" +
			"It fails if a message was lost, invented or out of order; with --strict if any budget was missed.",
		Args: noArguments,
	}
	cfg := bench.OutageConfig{Progress: p.err}
	cmd.Flags().DurationVar(&cfg.Down, "down", 10*time.Minute, "how long the queue is down")
	cmd.Flags().IntVar(&cfg.Rate, "rate", 1000, "messages a second")
	cmd.Flags().IntVar(&cfg.Transaction, "transaction", 10, "of them in one transaction")
	cmd.Flags().IntVar(&cfg.SideRate, "side-rate", 100, "messages a second for another queue, which stays up, one in a transaction")
	cmd.Flags().IntVar(&cfg.Keys, "keys", 100, "ordering keys, which every second message has")
	cmd.Flags().IntVar(&cfg.Payload, "payload", 400, "bytes of a payload")
	cmd.Flags().IntVar(&cfg.Burst, "burst", 60_000, "messages from which the speed of the live path is measured")
	cmd.Flags().DurationVar(&cfg.Steady, "steady", 20*time.Second, "how long life before and after is watched")
	cmd.Flags().Float64Var(&cfg.LeastDrain, "least-drain", 0.7, "budget: the drain as a part of the live path's speed")
	cmd.Flags().StringVar(&cfg.PostgresVersion, "postgres", "", "major version of Postgres; any without it")
	chart := cmd.Flags().String("chart", "", "write the course of the run into this file, as Markdown")
	log := cmd.Flags().String("relay-log", "", "write the relay's log into this file")
	strict := cmd.Flags().Bool("strict", false, "fail if any budget was missed")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := cfg.Validate(); err != nil {
			return &usageError{cmd.CommandPath(), err.Error()}
		}
		if *log != "" {
			file, err := os.Create(*log)
			if err != nil {
				return err
			}
			defer func() { _ = file.Close() }() // for people, while they look
			cfg.RelayLog = file
		}
		report, err := bench.RunOutage(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		if err := p.showOutage(report, *chart, *asJSON); err != nil {
			return err
		}
		if *strict {
			return report.Missed()
		}
		return report.Broken()
	}
	return cmd
}

func newBenchClaims(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "claims",
		Short: "Take claims while expired ones are removed",
		Long: "claims starts a throwaway Postgres and lets workers take claims as fast as they can, each in a\n" +
			"transaction of its own: first beside a relay that may not remove expired claims, then while a relay\n" +
			"removes them. It prints the speed and the latency of both, and their ratio.\n\n" +
			"With --strict it fails if the budget was missed.",
		Args: noArguments,
	}
	cfg := bench.ClaimsConfig{Progress: p.err}
	cmd.Flags().IntVar(&cfg.Workers, "workers", 32, "connections that take claims")
	cmd.Flags().IntVar(&cfg.Expired, "expired", 1_000_000, "expired claims that are removed in each round")
	cmd.Flags().DurationVar(&cfg.Alone, "alone", time.Minute, "how long the workers are measured in each round while nothing is removed")
	cmd.Flags().IntVar(&cfg.Rounds, "rounds", 3, "how often both are measured, in turn")
	cmd.Flags().Float64Var(&cfg.Least, "least", 0.9, "budget: the speed during the removal as a part of the speed without it")
	cmd.Flags().StringVar(&cfg.PostgresVersion, "postgres", "", "major version of Postgres; any without it")
	p.measure(cmd, cfg.Validate, func(ctx context.Context) (*bench.Report, error) { return bench.RunClaims(ctx, cfg) })
	return cmd
}

func newBenchEnqueue(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "enqueue",
		Short: "Write messages next to a bare INSERT of the same bytes",
		Long: "enqueue starts a throwaway Postgres and writes messages in turn by each way there is, and into a table\n" +
			"without constraints, trigger and index. It prints what a row costs, in time and in WAL, and what a\n" +
			"message adds to a transaction.",
		Args: noArguments,
	}
	cfg := bench.EnqueueConfig{Progress: p.err}
	cmd.Flags().IntVar(&cfg.Rows, "rows", 200, "messages for each way in each round")
	cmd.Flags().IntVar(&cfg.Transactions, "transactions", 20, "transactions of each kind in each round")
	cmd.Flags().IntVar(&cfg.Payload, "payload", 400, "bytes of a payload")
	cmd.Flags().IntVar(&cfg.Rounds, "rounds", 100, "how often every way has its turn")
	cmd.Flags().StringVar(&cfg.PostgresVersion, "postgres", "", "major version of Postgres; any without it")
	p.measure(cmd, cfg.Validate, func(ctx context.Context) (*bench.Report, error) { return bench.RunEnqueue(ctx, cfg) })
	return cmd
}

// measure makes a command check its settings, measure, and print the report.
func (p *program) measure(cmd *cobra.Command, validate func() error, run func(context.Context) (*bench.Report, error)) {
	strict := cmd.Flags().Bool("strict", false, "fail if any budget was missed")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := validate(); err != nil {
			return &usageError{cmd.CommandPath(), err.Error()}
		}
		report, err := run(cmd.Context())
		if err != nil {
			return err
		}
		if *asJSON {
			err = p.printJSON(report)
		} else {
			err = report.Print(p.out)
		}
		if err == nil && *strict {
			err = report.Missed()
		}
		return err
	}
}

// showOutage prints the report and writes its chart.
func (p *program) showOutage(report *bench.OutageReport, chart string, asJSON bool) error {
	if chart != "" {
		var text bytes.Buffer
		if err := report.Chart(&text); err != nil {
			return err
		}
		if err := os.WriteFile(chart, text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if asJSON {
		return p.printJSON(report)
	}
	return report.Print(p.out)
}

// newBenchSink, newBenchEmulator and newBenchQueue serve what bench measures
// against, as processes of their own.
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

func newBenchQueue(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "queue", Hidden: true, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return bench.ServeQueue(cmd.Context(), p.out) },
	}
}
