package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"

	"github.com/sethvargo/go-envconfig"
	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/capability"
	"github.com/outbox-relay/outbox-relay/internal/infraiadmin"
	"github.com/outbox-relay/outbox-relay/internal/plural"
)

func newInfraiDiscover(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "discover [CAPABILITY]",
		Short: "Show how the queue describes its calls, and whether outbox-relay makes them so",
		Long: "discover lists the calls that the queue has, or shows one of them, such as queue.publish. Those\n" +
			"that outbox-relay makes are compared with the requests that it sends; if one does not fit,\n" +
			"the exit code is 1. It needs no API key.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return &usageError{cmd.CommandPath(), fmt.Sprintf("want at most one capability, got %d", len(args))}
			}
			return nil
		},
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			if err := infraiadmin.CheckCapability(args[0]); err != nil {
				return &usageError{cmd.CommandPath(), err.Error()}
			}
		}
		cfg, err := p.loadWithoutKey(cmd.Context())
		if err != nil {
			return err
		}
		return withClient(cmd.Context(), cfg, func(ctx context.Context, c *infraiadmin.Client) error {
			if len(args) == 0 {
				return p.discoverAll(ctx, c, *asJSON)
			}
			return p.discover(ctx, c, args[0], *asJSON)
		})
	}
	return cmd
}

// loadWithoutKey reads the settings of the queue for questions that need no API
// key: one that is missing is not missed, since it is not sent.
func (p *program) loadWithoutKey(ctx context.Context) (*config.Config, error) {
	p.tellUnknown()
	environment := p.environment()
	file, _ := environment.Lookup("INFRAI_API_KEY_FILE")
	if key, _ := environment.Lookup("INFRAI_API_KEY"); key == "" && file == "" {
		environment = envconfig.MultiLookuper(envconfig.MapLookuper(map[string]string{"INFRAI_API_KEY": "none"}), environment)
	}
	return config.Load(ctx, environment, config.Queue)
}

// capabilityDocument is the JSON of infrai discover with a name.
type capabilityDocument struct {
	SchemaVersion int `json:"schema_version"`
	capabilityUse
	Summary string             `json:"summary"`
	Params  json.RawMessage    `json:"params"`
	Fields  []capability.Field `json:"fields"`
}

// capabilityUse is a call, and whether outbox-relay makes it as described.
type capabilityUse struct {
	ID         string `json:"id"`
	Method     string `json:"method"`
	Path       string `json:"path"`
	Available  *bool  `json:"available"`
	Idempotent *bool  `json:"idempotent"`
	// Used tells whether outbox-relay makes the call. Doubts are what does not
	// fit then.
	Used   bool     `json:"used"`
	Doubts []string `json:"doubts"`
}

func newCapabilityUse(c capability.Capability, doubts func(capability.Call) []string) capabilityUse {
	use := capabilityUse{
		ID: c.ID, Method: c.Method, Path: c.Path, Available: c.Available, Idempotent: c.Idempotent, Doubts: []string{},
	}
	var call capability.Call
	if call, use.Used = infraiadmin.CallOf(c.ID); use.Used {
		use.Doubts = append(use.Doubts, doubts(call)...)
	}
	return use
}

func (p *program) discover(ctx context.Context, c *infraiadmin.Client, id string, asJSON bool) error {
	described, err := c.Capability(ctx, id)
	if err != nil {
		return err
	}
	described.ID = id
	use := newCapabilityUse(*described, described.Doubts)
	if asJSON {
		fields := append([]capability.Field{}, described.Fields()...)
		err = p.printJSON(capabilityDocument{1, use, described.Summary, described.Params, fields})
	} else {
		err = p.printCapability(described, use)
	}
	return errors.Join(err, doubtful(use))
}

func (p *program) printCapability(c *capability.Capability, use capabilityUse) error {
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "capability\t%s\n", use.ID)
	fmt.Fprintf(table, "what it does\t%s\n", told(c.Summary))
	fmt.Fprintf(table, "method\t%s\n", told(use.Method))
	fmt.Fprintf(table, "path\t%s\n", told(use.Path))
	fmt.Fprintf(table, "available\t%s\n", yesNo(use.Available))
	fmt.Fprintf(table, "idempotent\t%s\n", yesNo(use.Idempotent))
	if err := table.Flush(); err != nil {
		return err
	}
	if fields := c.Fields(); len(fields) > 0 {
		fmt.Fprintln(table, "\nFIELD\tTYPE\tREQUIRED")
		for _, f := range fields {
			fmt.Fprintf(table, "%s\t%s\t%t\n", quoteOdd(f.Name), told(f.Type), f.Required)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	p.printFit(use)
	return nil
}

// printFit tells whether a call is made as described.
func (p *program) printFit(use capabilityUse) {
	switch {
	case !use.Used:
		fmt.Fprintln(p.out, "\noutbox-relay does not make this call")
	case len(use.Doubts) == 0:
		fmt.Fprintln(p.out, "\noutbox-relay makes this call as described")
	default:
		fmt.Fprintln(p.out, "\noutbox-relay makes this call otherwise:")
		for _, doubt := range use.Doubts {
			fmt.Fprintln(p.out, "  "+doubt)
		}
	}
}

// indexDocument is the JSON of infrai discover.
type indexDocument struct {
	SchemaVersion int             `json:"schema_version"`
	Capabilities  []capabilityUse `json:"capabilities"`
	// Missing are calls that outbox-relay makes and the index does not have.
	Missing []string `json:"missing"`
}

func (p *program) discoverAll(ctx context.Context, c *infraiadmin.Client, asJSON bool) error {
	index, err := c.Index(ctx)
	if err != nil {
		return err
	}
	document := indexDocument{SchemaVersion: 1, Capabilities: []capabilityUse{}, Missing: []string{}}
	listed := map[string]bool{}
	for _, described := range index {
		listed[described.ID] = true
		document.Capabilities = append(document.Capabilities, newCapabilityUse(described, described.PlaceDoubts))
	}
	for _, call := range infraiadmin.Calls() {
		if !listed[call.ID] {
			document.Missing = append(document.Missing, call.ID)
		}
	}
	if asJSON {
		err = p.printJSON(document)
	} else {
		err = p.printIndex(document)
	}
	return errors.Join(err, doubtful(document.Capabilities...))
}

func (p *program) printIndex(d indexDocument) error {
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CAPABILITY\tMETHOD\tPATH\tAVAILABLE\tUSED")
	for _, use := range d.Capabilities {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%t\n", told(use.ID), told(use.Method), told(use.Path), yesNo(use.Available), use.Used)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, id := range d.Missing {
		fmt.Fprintf(p.out, "not in the list, and used by outbox-relay: %s\n", id)
	}
	for _, use := range d.Capabilities {
		for _, doubt := range use.Doubts {
			fmt.Fprintf(p.out, "%s: %s\n", use.ID, doubt)
		}
	}
	return nil
}

// yesNo writes what may not have been told.
func yesNo(b *bool) string {
	if b == nil {
		return "-"
	}
	return strconv.FormatBool(*b)
}

// doubtError says that calls are not made as they are described.
type doubtError struct{ doubts int }

func doubtful(uses ...capabilityUse) error {
	doubts := 0
	for _, use := range uses {
		doubts += len(use.Doubts)
	}
	if doubts == 0 {
		return nil
	}
	return &doubtError{doubts}
}

func (e *doubtError) Error() string {
	return fmt.Sprintf("what outbox-relay sends does not fit the description in %s", plural.Of(e.doubts, "point", "points"))
}

// Hint says what to do.
func (e *doubtError) Hint() string {
	return "look for a newer version of outbox-relay; messages may be refused"
}
