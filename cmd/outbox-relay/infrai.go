package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/infraiadmin"
)

func newInfrai(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "infrai",
		Short: "Ask the Infrai project: calls, numbers of a queue, deliveries of a webhook",
		Long: "infrai asks the Infrai project and changes nothing. It needs INFRAI_API_KEY or\n" +
			"INFRAI_API_KEY_FILE, and no database; discover needs neither.",
		Args: noArguments,
		RunE: needVerb,
	}
	cmd.AddCommand(newInfraiDiscover(p), newInfraiStats(p), newInfraiDeliveries(p))
	return cmd
}

// askInfrai lets do talk to the project that the settings name.
func (p *program) askInfrai(cmd *cobra.Command, do func(context.Context, *infraiadmin.Client) error) error {
	cfg, err := p.load(cmd.Context(), config.Queue)
	if err != nil {
		return err
	}
	return withClient(cmd.Context(), cfg, do)
}

func withClient(ctx context.Context, cfg *config.Config, do func(context.Context, *infraiadmin.Client) error) error {
	client, err := infraiadmin.New(cfg.Infrai)
	if err != nil {
		return err
	}
	defer client.Close()
	return do(ctx, client)
}

// told writes a text of the service, which may have left it out.
func told(text string) string {
	if text == "" {
		return "-"
	}
	return quoteOdd(text)
}
