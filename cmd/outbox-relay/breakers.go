package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
)

const (
	// breakersTimeout bounds the question to a relay that may be anywhere: who asks
	// wants to know the rest, too.
	breakersTimeout = 2 * time.Second
	// breakersBytes bounds an answer. A queue takes less than a kilobyte of it.
	breakersBytes = 16 << 20
)

// askBreakers asks the relay that runs here which breakers are open. It returns
// false if there is none, or if another one has the slot.
func askBreakers(ctx context.Context, cfg *config.Config) ([]status.Breaker, bool) {
	address, err := adminAddress(cfg.Admin.Listen)
	if err != nil {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, breakersTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/status?database=off", http.NoBody)
	if err != nil {
		return nil, false
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // straight there: no proxy
	response, err := client.Do(request)
	if err != nil {
		return nil, false
	}
	defer response.Body.Close()
	var answer struct {
		Version int         `json:"version"`
		Relay   relay.State `json:"relay"`
	}
	err = json.NewDecoder(http.MaxBytesReader(nil, response.Body, breakersBytes)).Decode(&answer)
	if err != nil || answer.Version != admin.Version || answer.Relay.Version != relay.StateVersion {
		return nil, false
	}
	at := answer.Relay.Phase == relay.Active || answer.Relay.Phase == relay.Careful
	if !at || answer.Relay.Slot != cfg.CDC.Slot {
		return nil, false
	}
	return openBreakers(&answer.Relay.Router), true
}

func openBreakers(r *relay.RouterState) (open []status.Breaker) {
	add := func(queue string, g *relay.GateState) {
		if g.Closed {
			open = append(open, status.Breaker{Queue: queue, Class: g.Class, Since: g.Since, NextProbe: g.NextProbe, Text: g.Text})
		}
	}
	add("", &r.Endpoint)
	for i := range r.Queues {
		add(r.Queues[i].Name, &r.Queues[i].Gate)
	}
	return open
}
