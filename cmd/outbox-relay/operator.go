package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/schema"
)

// operate connects as DATABASE_URL says and lets do act in the schema.
func (p *program) operate(cmd *cobra.Command, do func(context.Context, *operate.Operator) error) error {
	ctx := cmd.Context()
	cfg, err := p.load(ctx, config.Database)
	if err != nil {
		return err
	}
	err = withConnection(ctx, cfg, func(conn *pgx.Conn) error {
		if err := schema.Check(ctx, conn, cfg.Schema); err != nil {
			return err
		}
		return do(ctx, operate.New(conn, cfg.Schema))
	})
	if invalid, ok := errors.AsType[*operate.InvalidError](err); ok {
		return &usageError{cmd.CommandPath(), invalid.Error()}
	}
	return err
}
