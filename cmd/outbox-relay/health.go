package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/outbox-relay/config"
)

// healthTimeout bounds the question: who asks kills what does not answer.
const healthTimeout = 5 * time.Second

func newHealth(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask the relay on this machine whether it is ready",
		Long: "health asks the admin server of the relay that runs with the same settings, for containers\n" +
			"without a shell. It prints the answer, and exits with 0 if it is yes and with 1 if it is no\n" +
			"or if nobody answers.",
		Args: noArguments,
	}
	alive := cmd.Flags().Bool("live", false, "ask whether it is alive instead")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := p.load(cmd.Context(), config.Admin)
		if err != nil {
			return err
		}
		address, err := adminAddress(cfg.Admin.Listen)
		if err != nil {
			return &config.Error{Problems: []error{err}}
		}
		path, accept := "/readyz", "text/plain"
		if *alive {
			path = "/livez"
		}
		if *asJSON {
			accept = "application/json"
		}
		return p.askHealth(cmd.Context(), "http://"+address+path, accept)
	}
	return cmd
}

// adminAddress is where to reach an admin server that listens there.
func adminAddress(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port == "0" {
		return "", fmt.Errorf("RELAY_ADMIN_LISTEN is %s: nobody can be asked there", listen)
	}
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "localhost"
	}
	return net.JoinHostPort(host, port), nil
}

// errUnhealthy says that the answer was no.
var errUnhealthy = errors.New("the answer is no")

// askHealth prints the answer of the admin server.
func (p *program) askHealth(ctx context.Context, url, accept string) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", accept)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // straight there: no proxy
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the relay: %w", err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(p.out, response.Body); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch response.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusServiceUnavailable:
		return errUnhealthy
	}
	return fmt.Errorf("something else than a relay answers there, with status %d", response.StatusCode)
}
