package emulator

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Delivery is one delivery to a webhook. The emulator makes none itself: it tells
// those that it was given.
type Delivery struct {
	// ID is made where it is empty, and Time is now.
	ID string `json:"id"`
	// Webhook is the id of the webhook.
	Webhook string    `json:"webhook"`
	Event   string    `json:"event"`
	Time    time.Time `json:"timestamp"`
	// Status is delivered, failed or pending; empty is delivered.
	Status string `json:"status"`
	// DestinationStatus is what the target answered; 0 is nothing.
	DestinationStatus int `json:"destination_status,omitempty"`
	// Attempts is how often it was tried; 0 is once.
	Attempts int `json:"attempts"`
	// Payload is what was delivered; nil tells none.
	Payload json.RawMessage `json:"payload,omitempty"`
}

// maxDeliveries bounds the list: the oldest go.
const maxDeliveries = 10_000

var statuses = []string{"delivered", "failed", "pending"}

// Validate reports everything that is wrong with a delivery.
func (d *Delivery) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(d.Webhook != "" && !strings.Contains(d.Webhook, "/"), "webhook is %q, want an id", d.Webhook)
	check(!strings.Contains(d.ID, "/"), "id is %q, want an id", d.ID)
	check(d.ID != d.Webhook || d.ID == "", "id and webhook are both %q: the path of the call names either", d.ID)
	check(d.Status == "" || slices.Contains(statuses, d.Status), "status is %q, want one of %s", d.Status, strings.Join(statuses, ", "))
	check(d.Payload == nil || json.Valid(d.Payload), "payload is not JSON")
	return errors.Join(errs...)
}

// AddDelivery adds a delivery to the history of its webhook and returns its id.
func (s *Server) AddDelivery(d Delivery) (id string, err error) {
	if err := d.Validate(); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sequence++
	d.ID = cmp.Or(d.ID, fmt.Sprintf("dlv_%08x%012x", s.run, s.sequence))
	d.Status, d.Attempts = cmp.Or(d.Status, statuses[0]), cmp.Or(d.Attempts, 1)
	if d.Time.IsZero() {
		d.Time = s.clock.Now()
	}
	s.deliveries = append(s.deliveries, d)
	if len(s.deliveries) > maxDeliveries {
		s.deliveries = slices.Delete(s.deliveries, 0, 1)
	}
	return d.ID, nil
}

// listDeliveries tells the history of a webhook, the newest first, or a single
// delivery: the path names either.
func (s *Server) listDeliveries(c *call) answer {
	id := c.request.URL.Path[len(c.route.path):]
	history := struct {
		Items []Delivery `json:"items"`
	}{}
	for _, d := range slices.Backward(s.deliveries) {
		if d.ID == id {
			return c.tell(d)
		}
		if d.Webhook == id {
			history.Items = append(history.Items, d)
		}
	}
	if history.Items == nil {
		return refuse(http.StatusNotFound, codeWebhookNotFound, "no webhook and no delivery has this id")
	}
	return c.tell(history)
}

// tell answers with a value.
func (c *call) tell(v any) answer {
	data, err := json.Marshal(v)
	if err != nil {
		return refuse(http.StatusInternalServerError, "INTERNAL", err.Error())
	}
	return c.success(data)
}

// addDeliveries is the emulator's own call for that: one, or several as an array.
func (s *Server) addDeliveries(w http.ResponseWriter, r *http.Request) {
	list, ok := readSome[Delivery](w, r)
	if !ok {
		return
	}
	ids := make([]string, len(list))
	for i, d := range list {
		ids[i], _ = s.AddDelivery(d) // valid, as seen above
	}
	s.log.Info("deliveries added", zap.Strings("ids", ids))
	writeJSON(w, map[string][]string{"ids": ids})
}
