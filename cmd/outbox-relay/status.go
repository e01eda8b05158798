package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/pgtext"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/internal/waits"
	"github.com/outbox-relay/outbox-relay/schema"
)

func newStatus(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how the relay is doing",
		Long: "status reads from Postgres who holds the slot, how much WAL it keeps, how many messages have no\n" +
			"outcome, are deferred, and why, or are dead letters. It works whether a relay runs or not; one that\n" +
			"runs here, with the same settings, is asked where it has paused sending, and which messages it has.\n\n" +
			"With --watch it looks again every 2 seconds until it is stopped: on a terminal it draws the\n" +
			"table anew, elsewhere it writes a line, or with --json a document, for each look.",
		Args: noArguments,
	}
	asJSON := jsonFlag(cmd)
	watch := cmd.Flags().Bool("watch", false, "look again every 2 seconds")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		cfg, err := p.load(ctx, config.Database)
		switch {
		case err != nil:
			return err
		case *watch:
			return p.watchStatus(ctx, cfg, *asJSON)
		}
		report, err := readStatus(ctx, cfg)
		switch {
		case err != nil:
			return err
		case *asJSON:
			return p.printJSON(report)
		}
		return report.Print(p.out)
	}
	return cmd
}

// readStatus asks the relay first: what it has in memory is compared with what the
// database says after that.
func readStatus(ctx context.Context, cfg *config.Config) (report *status.Report, err error) {
	portrait, deaf := askRelay(ctx, cfg)
	err = withConnection(ctx, cfg, func(conn *pgx.Conn) error {
		if err := schema.Check(ctx, conn, cfg.Schema); err != nil {
			return err
		}
		report, err = status.Read(ctx, conn, cfg.Schema, cfg.CDC.Slot)
		return err
	})
	if err != nil {
		return nil, err
	}
	if deaf != nil {
		report.RelayError = deaf.Error()
		return report, nil
	}
	report.Hear(&portrait.Relay)
	if report.Concerns(&portrait.Relay) {
		report.Tell(portrait.findings())
		report.DeferredPace = portrait.DeferredPace
	}
	return report, nil
}

// watchInterval is the pause between two looks: long enough to read, and a load
// that no server feels.
const watchInterval = 2 * time.Second

// watchStatus looks until ctx ends. Each look has a connection of its own, so that
// it outlives a server that goes away and comes back. What a person has to mend
// first ends it, and so does anything that goes wrong at the first look.
func (p *program) watchStatus(ctx context.Context, cfg *config.Config, asJSON bool) error {
	show := p.showLine
	switch {
	case asJSON:
		show = p.showDocument
	case isTerminal(p.out):
		show = p.showScreen
	}
	for first := true; ; first = false {
		report, err := readStatus(ctx, cfg)
		stopped := ctx.Err() != nil
		switch {
		case err == nil:
			if err := show(report); err != nil {
				return err // nobody reads any more
			}
		case stopped: // which is no error
		case first || exitCode(err) != exitUnexpected:
			return err
		default:
			fmt.Fprintln(p.err, "outbox-relay:", pgtext.OneLine(err))
		}
		if !waits.Sleep(ctx, watchInterval) {
			return nil
		}
	}
}

func (p *program) showLine(r *status.Report) error {
	_, err := fmt.Fprintf(p.out, "%s %s\n", moment(r.At), r.Summary)
	return err
}

func (p *program) showDocument(r *status.Report) error {
	return json.NewEncoder(p.out).Encode(r)
}

// clearScreen goes to the first line and removes what is below. The text is
// written at once, so that nothing flickers.
const clearScreen = "\x1b[H\x1b[J"

func (p *program) showScreen(r *status.Report) error {
	var screen bytes.Buffer
	screen.WriteString(clearScreen)
	if err := r.Print(&screen); err != nil {
		return err
	}
	fmt.Fprintf(&screen, "\n%s, every %s until Ctrl-C\n", moment(r.At), watchInterval)
	_, err := io.Copy(p.out, &screen)
	return err
}
