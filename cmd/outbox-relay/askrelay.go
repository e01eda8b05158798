package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
)

const (
	// relayTimeout bounds the question to a relay that may be anywhere: who asks
	// wants to know the rest, too.
	relayTimeout = 2 * time.Second
	// relayBytes bounds an answer. A queue takes less than a kilobyte of it.
	relayBytes = 16 << 20
)

// selfPortrait is what a relay knows of itself: a part of the answer of /status.
type selfPortrait struct {
	Version int           `json:"version"`
	Ready   admin.Verdict `json:"ready"`
	Relay   relay.State   `json:"relay"`

	DeferredPace *status.Pace `json:"deferred_pace"`
}

// askRelay asks the relay that runs here what it knows of itself. It answers at
// once: it asks nobody.
func askRelay(ctx context.Context, cfg *config.Config) (*selfPortrait, error) {
	address, err := adminAddress(cfg.Admin.Listen)
	if err != nil {
		return nil, fmt.Errorf("no relay was asked: %w", err)
	}
	portrait, err := askAt(ctx, "http://"+address+"/status?database=off")
	if err != nil {
		return nil, fmt.Errorf("the relay at %s could not be asked: %w", address, err)
	}
	return portrait, nil
}

// errSlowRelay says that a relay was given up.
var errSlowRelay = fmt.Errorf("no answer within %s", relayTimeout)

func askAt(ctx context.Context, address string) (*selfPortrait, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, relayTimeout, errSlowRelay)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // straight there: no proxy
	response, err := client.Do(request)
	if err != nil {
		return nil, cause(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("something else than a relay answers there, with status %d", response.StatusCode)
	}
	var answer selfPortrait
	if err := json.NewDecoder(http.MaxBytesReader(nil, response.Body, relayBytes)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("read its answer: %w", cause(ctx, err))
	}
	if answer.Version != admin.Version || answer.Relay.Version != relay.StateVersion {
		return nil, errors.New("its answer is one of another version of this program")
	}
	return &answer, nil
}

// cause is why a request came to nothing, without the address, which is told.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

// findings are those of a relay, as the report has them.
func (s *selfPortrait) findings() []status.Finding {
	all := make([]status.Finding, 0, len(s.Ready.Reasons)+len(s.Ready.Warnings))
	add := func(level string, found []admin.Finding) {
		for _, f := range found {
			all = append(all, status.Finding{Level: level, Code: f.Code, Text: f.Text, Hint: f.Hint})
		}
	}
	add(status.Fail, s.Ready.Reasons)
	add(status.Warn, s.Ready.Warnings)
	return all
}
