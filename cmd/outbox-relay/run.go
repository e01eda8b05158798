package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/pgtext"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/internal/waits"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
	"github.com/outbox-relay/outbox-relay/relay/poll"
	"github.com/outbox-relay/outbox-relay/schema"
)

func newRun(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Publish messages until stopped",
		Long: "run publishes committed messages until it is stopped with SIGTERM or SIGINT. Then it finishes\n" +
			"the requests in flight, records their outcomes and gives the slot back; a second signal ends it\n" +
			"at once. While another relay holds the slot it waits to take over.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(cmd.Context(), p.environment())
			if err != nil {
				p.tellUnknown() // one of them may be the one that is missing
				return err
			}
			log := newLogger(cfg.Log, p.err)
			return logEnd(cmd.Context(), log, p.relay(cmd.Context(), cfg, log))
		},
	}
}

// relay wires the parts and runs them until ctx ends.
func (p *program) relay(ctx context.Context, cfg *config.Config, log *zap.Logger) error {
	cfg.Relay.Version, cfg.Relay.Holder = currentVersion().Version, holder()
	p.logStart(cfg, log)
	p.boundMemory(cfg)

	publisher, err := infrai.New(cfg.Infrai, log)
	if err != nil {
		return &config.Error{Problems: []error{err}}
	}
	defer publisher.Close()
	traces, stopSending := sendTraces(ctx, cfg, publisher, log)
	defer stopSending()
	source := newSource(cfg, log)
	moving := relay.New(cfg.Relay, cfg.Database(), source, publisher, log)
	checker, stopChecking := checkOutbox(ctx, cfg, moving, log)
	defer stopChecking()
	stopAnswering, err := serveAdmin(ctx, cfg, parts{moving, source, publisher, traces, checker}, log)
	if err != nil {
		return err
	}
	defer stopAnswering()
	defer p.tellSystemd(ctx, cfg, moving, log)()
	if err := awaitSchema(ctx, cfg, moving, log); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := requireRights(ctx, cfg); err != nil {
		return err
	}
	tellUnusedSlots(ctx, cfg, log)
	return moving.Run(ctx)
}

// requireRights returns a *doctor.RightsError if the relay could not write down what
// becomes of the messages that it sends: nobody else would notice before the first
// one has gone out. Whatever else is wrong the relay meets by itself.
func requireRights(ctx context.Context, cfg *config.Config) error {
	ctx, cancel := context.WithTimeout(ctx, 2*cfg.CDC.ConnectTimeout) // to connect, and to ask
	defer cancel()
	err := withConnection(ctx, cfg, func(conn *pgx.Conn) error { return doctor.RequireRights(ctx, conn, cfg.Schema) })
	if is[*doctor.RightsError](err) {
		return err
	}
	return nil
}

// tellUnusedSlots points out slots that relays of this outbox used before,
// mostly under an earlier name: nobody reads them, and they keep WAL until
// somebody drops them.
func tellUnusedSlots(ctx context.Context, cfg *config.Config, log *zap.Logger) {
	ours := cfg.CDC.Slot
	if cfg.Polls() {
		ours = "" // no slot is in use
	}
	ctx, cancel := context.WithTimeout(ctx, 2*cfg.CDC.ConnectTimeout) // to connect, and to ask
	defer cancel()
	var unused []status.UnusedSlot
	err := withConnection(ctx, cfg, func(conn *pgx.Conn) (err error) {
		unused, err = status.EarlierSlots(ctx, conn, cfg.Schema, ours)
		return err
	})
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		log.Warn("cannot look for slots that are not in use", zap.Error(err))
	}
	for i := range unused {
		log.Warn("slot that no relay uses any more keeps WAL",
			zap.String("unused_slot", unused[i].Name), zap.String("retained", unused[i].Retained()),
			zap.Timep("last_used", unused[i].LastUsed), zap.String("sql", unused[i].Drop()))
	}
}

// newSource is where messages are read.
func newSource(cfg *config.Config, log *zap.Logger) relay.Source {
	if cfg.Polls() {
		return poll.New(cfg.Poll, cfg.Database(), cfg.Replication(), log)
	}
	return cdc.New(cfg.CDC, cfg.Database(), cfg.Replication(), log)
}

// logStart writes the first lines: who this is, and what about its settings may
// be a mistake.
func (p *program) logStart(cfg *config.Config, log *zap.Logger) {
	log.Info("starting",
		zap.String("version", cfg.Relay.Version), zap.String("mode", cfg.Mode), zap.String("slot", cfg.CDC.Slot),
		zap.String("publication", cfg.CDC.Publication), zap.String("schema", cfg.Schema), zap.String("holder", cfg.Relay.Holder))
	for _, text := range cfg.Warnings() {
		log.Warn("doubtful setting", zap.String("reason", text))
	}
	for _, u := range config.FindUnknown(p.environ) {
		log.Warn("unknown setting has no effect", zap.String("name", u.Name), zap.String("nearest", u.Nearest))
	}
}

// holder tells people which process holds the slot.
func holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// awaitSchema waits until the database answers and returns a
// *schema.VersionError if the schema is not the one that this program needs.
func awaitSchema(ctx context.Context, cfg *config.Config, moving *relay.Relay, log *zap.Logger) error {
	waiting, told := false, ""
	for wait := cfg.CDC.RetryMin; ; wait = min(2*wait, cfg.CDC.RetryMax) {
		err := withConnection(ctx, cfg, func(conn *pgx.Conn) error {
			return schema.Check(ctx, conn, cfg.Schema)
		})
		moving.Awaits(err)
		if err == nil && waiting {
			log.Info("database answers")
		}
		if err == nil || !passes(err) || ctx.Err() != nil {
			return err
		}
		// Texts differ in ports and addresses from one try to the next.
		if code := pgtext.SQLState(err); !waiting || code != told {
			waiting, told = true, code
			log.Warn("database does not answer, waiting for it", zap.Error(err), zap.String("hint", hintOf(err)))
		}
		if !waits.Sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

// logEnd writes the last line: why the relay ended, and with which code.
func logEnd(ctx context.Context, log *zap.Logger, err error) error {
	if err == nil {
		log.Info("stopped", zap.NamedError("reason", context.Cause(ctx)), zap.Int("exit_code", exitStopped))
		return nil
	}
	hint := zap.Skip()
	if text := newHint(err); text != "" {
		hint = zap.String("hint", text)
	}
	log.Error("stopped", zap.Error(err), hint, zap.Int("exit_code", exitCode(err)))
	return &loggedError{err}
}
