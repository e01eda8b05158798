package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/schema"
)

func newSlot(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "slot",
		Short: "Show the replication slot, make it ahead of time, replace or drop it",
		Long: "slot works with the replication slot that RELAY_SLOT names. The relay makes it by itself, and never\n" +
			"drops it: a stop keeps it, so that nothing is missed.",
		Args: noArguments,
		RunE: needVerb,
	}
	cmd.AddCommand(newSlotShow(p), newSlotCreate(p), newSlotRecreate(p), newSlotDrop(p))
	return cmd
}

func newSlotShow(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the slot, what it keeps, and slots that nobody uses",
		Long: "show says who holds the slot, how much WAL the server keeps for it and how much more it may. Below\n" +
			"it lists the other slots of pgoutput in this database that nobody reads: one of an earlier name\n" +
			"keeps WAL until it is dropped. It exits with 12 if the slot is missing, lost or not ours.",
		Args: noArguments,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		cfg, err := p.load(ctx, config.Database)
		if err != nil {
			return err
		}
		var report *status.SlotReport
		err = withConnection(ctx, cfg, func(conn *pgx.Conn) error {
			if err := schema.Check(ctx, conn, cfg.Schema); err != nil {
				return err
			}
			report, err = status.ReadSlot(ctx, conn, cfg.Schema, cfg.CDC.Slot)
			return err
		})
		if err != nil {
			return err
		}
		if *asJSON {
			err = p.printJSON(report)
		} else {
			err = report.Print(p.out)
		}
		if err == nil && report.Trouble != "" && !cfg.Polls() {
			err = &slotError{report}
		}
		return err
	}
	return cmd
}

// slotError says that no relay can use the slot.
type slotError struct{ report *status.SlotReport }

func (e *slotError) Error() string { return fmt.Sprintf("slot %q %s", e.report.Name, e.report.Trouble) }

// Hint says what a person does about it.
func (e *slotError) Hint() string {
	switch r := e.report; {
	case !r.Exists:
		return "the relay makes it when it starts, `outbox-relay slot create` makes it now"
	case r.Foreign:
		return "choose another name with RELAY_SLOT; or, if nobody needs that slot, drop it with pg_drop_replication_slot"
	}
	return "`outbox-relay slot recreate --yes` makes it anew; the messages are safe in the table"
}

func newSlotCreate(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make the slot ahead of the relay's first start",
		Long: "create makes the slot as the relay does at its first start: it looks at server and publication, takes\n" +
			"down that the next relay has to look through the table, and waits for every open transaction that\n" +
			"has written something. It needs a role that may replicate. A slot that is there already is left alone.\n" +
			"On a server that the relay does not work on before `outbox-relay adopt` it refuses, with exit code 14.",
		Args: noArguments,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.withSlot(cmd, true, func(ctx context.Context, s slotAct) error {
			made, err := s.source.MakeSlot(ctx)
			switch {
			case err != nil:
				return err
			case !made:
				fmt.Fprintf(p.out, "slot %q is there already\n", s.cfg.CDC.Slot)
				return nil
			}
			fmt.Fprintf(p.out, "slot %q made; what was written before it, the next relay takes from the table\n", s.cfg.CDC.Slot)
			return nil
		})
	}
	return cmd
}

func newSlotRecreate(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recreate",
		Short: "Drop the slot and make it anew; nothing is lost",
		Long: "recreate drops the slot, whatever state it is in, and makes it anew, like create. It mends a slot that\n" +
			"is lost, and one that is older than its publication. What the old slot would have shown, the next\n" +
			"relay takes from the table. It refuses, with exit code 11, while somebody streams from the slot.\n\n" +
			"Without --yes it only looks whether it could.",
		Args: noArguments,
	}
	yes := surelyFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.withSlot(cmd, true, func(ctx context.Context, s slotAct) error { return p.recreateSlot(ctx, s, *yes) })
	}
	return cmd
}

func (p *program) recreateSlot(ctx context.Context, s slotAct, yes bool) error {
	exists, err := s.source.CheckRemake(ctx)
	if err != nil {
		return err
	}
	if err := p.printUnfinished(ctx, s.operator); err != nil {
		return err
	}
	done := "dropped and made anew"
	if !exists {
		done = "made" // there was none
	}
	if !yes {
		fmt.Fprintf(p.out, "slot %q would be %s\n", s.cfg.CDC.Slot, done)
		fmt.Fprintln(p.out, "nothing was changed; with --yes it is done")
		return nil
	}
	if err := s.source.RemakeSlot(ctx); err != nil {
		return err
	}
	fmt.Fprintf(p.out, "slot %q %s; what was written before it, the next relay takes from the table\n", s.cfg.CDC.Slot, done)
	return nil
}

func newSlotDrop(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drop",
		Short: "Drop the slot, so that it keeps no WAL",
		Long: "drop is for the removal of a relay, or of a slot with an earlier name (RELAY_SLOT=name). It says how many\n" +
			"messages have no outcome yet: they stay in the table, and a relay that is started again makes a new\n" +
			"slot and sends them. It refuses, with exit code 11, while somebody streams from the slot.\n\n" +
			"Without --yes it only looks whether it could.",
		Args: noArguments,
	}
	publication := cmd.Flags().Bool("publication", false, "drop the publication, too; only its owner may")
	yes := surelyFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.withSlot(cmd, false, func(ctx context.Context, s slotAct) error {
			return p.dropSlot(ctx, s, *publication, *yes)
		})
	}
	return cmd
}

func (p *program) dropSlot(ctx context.Context, s slotAct, publication, yes bool) error {
	exists, err := s.source.CheckDrop(ctx)
	if err != nil {
		return err
	}
	if err := p.printUnfinished(ctx, s.operator); err != nil {
		return err
	}
	if !yes {
		p.printWouldDrop(s.cfg, exists, publication)
		return nil
	}
	dropped, err := s.source.DropSlot(ctx)
	if err != nil {
		return err
	}
	p.printDropped("slot", s.cfg.CDC.Slot, dropped)
	if !publication {
		return nil
	}
	if dropped, err = s.source.DropPublication(ctx); err != nil {
		return err
	}
	p.printDropped("publication", s.cfg.CDC.Publication, dropped)
	return nil
}

func (p *program) printWouldDrop(cfg *config.Config, exists, publication bool) {
	if exists {
		fmt.Fprintf(p.out, "slot %q would be dropped\n", cfg.CDC.Slot)
	} else {
		p.printDropped("slot", cfg.CDC.Slot, false)
	}
	if publication {
		fmt.Fprintf(p.out, "publication %q would be dropped\n", cfg.CDC.Publication)
	}
	fmt.Fprintln(p.out, "nothing was changed; with --yes it is done")
}

func (p *program) printDropped(what, name string, dropped bool) {
	if dropped {
		fmt.Fprintf(p.out, "%s %q dropped\n", what, name)
		return
	}
	fmt.Fprintf(p.out, "%s %q does not exist\n", what, name)
}

// printUnfinished says what the table still holds for a relay.
func (p *program) printUnfinished(ctx context.Context, o *operate.Operator) error {
	without, deferred, err := o.CountUnfinished(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "%s no outcome yet, %s in deferred; they stay in the table\n",
		counted(without, "message has", "messages have"), counted(deferred, "waits", "wait"))
	return nil
}

// surelyFlag adds --yes to a verb that destroys something.
func surelyFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("yes", false, "do it; without, it is only shown")
}

// slotAct is what a verb that changes the slot works with.
type slotAct struct {
	cfg      *config.Config
	operator *operate.Operator
	source   *cdc.Source
}

// withSlot connects, as the relay would, and lets do act on the slot. needed says
// that the verb makes no sense in a mode without a slot.
func (p *program) withSlot(cmd *cobra.Command, needed bool, do func(context.Context, slotAct) error) error {
	ctx := cmd.Context()
	cfg, err := p.load(ctx, config.Replication)
	if err != nil {
		return err
	}
	if needed && cfg.Polls() {
		return &usageError{cmd.CommandPath(), "RELAY_MODE is poll: there is no slot to make"}
	}
	source := cdc.New(cfg.CDC, cfg.Database(), cfg.Replication(), newLogger(cfg.Log, p.err))
	return withConnection(ctx, cfg, func(conn *pgx.Conn) error {
		if err := schema.Check(ctx, conn, cfg.Schema); err != nil {
			return err
		}
		operator := operate.New(conn, cfg.Schema)
		if needed {
			if err := mayMakeSlot(ctx, conn, operator, cfg.CDC.Slot); err != nil {
				return err
			}
		}
		source.BeforeCreate(nil, func(ctx context.Context) error { return operator.ExpectNewSlot(ctx, cfg.CDC.Slot) })
		return do(ctx, slotAct{cfg, operator, source})
	})
}

// mayMakeSlot refuses a slot that no relay would read: dispatching is held here. On
// a copy for tests it would keep WAL for ever.
func mayMakeSlot(ctx context.Context, conn *pgx.Conn, o *operate.Operator, slot string) error {
	var standby bool
	if err := conn.QueryRow(ctx, "select pg_is_in_recovery()").Scan(&standby); err != nil || standby {
		return err // of a standby there is more to say than this
	}
	found, err := o.Cluster(ctx, slot)
	if err != nil || !found.Held() {
		return err
	}
	return &heldError{found}
}

// heldError says that a relay does nothing on this server.
type heldError struct{ found *operate.Adoption }

func (e *heldError) Error() string {
	return fmt.Sprintf("no slot is made here: the relay was on system %s, timeline %d, and this is system %s, timeline %d; dispatching is held",
		e.found.KnownSystem, e.found.KnownTimeline, e.found.System, e.found.Timeline)
}

// Hint says what a person does about it.
func (e *heldError) Hint() string {
	return "if the relay is to work here, `outbox-relay adopt` shows what it would send, and lets it with --yes; it makes the slot itself then. " +
		"A copy for tests needs none: it would keep WAL for ever"
}
