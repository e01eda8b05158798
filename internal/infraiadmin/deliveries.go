package infraiadmin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
)

// Delivery is one attempt of the queue's service to reach a webhook. Its fields
// are not documented: those that are not told are empty.
type Delivery struct {
	ID     string `json:"id"`
	Event  string `json:"event"`
	Status string `json:"status"`
	// DestinationStatus is what the target answered.
	DestinationStatus string `json:"destination_status"`
	At                string `json:"at"`
	Attempts          string `json:"attempts"`
	// Others are the names of what else is told. What it holds, such as the
	// payload, is not read.
	Others []string `json:"others"`
}

// identifier leaves the length out: a bound of its own would be unrolled, and paid
// for in every start of the program.
var identifier = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.:-]*$`)

// CheckID says what is wrong with the id of a webhook or a delivery.
func CheckID(id string) error {
	if len(id) > maxIdentifier || !identifier.MatchString(id) {
		return fmt.Errorf("%q is not an id: want up to %d letters, digits, dots, colons, hyphens and underscores", id, maxIdentifier)
	}
	return nil
}

// Deliveries asks for the history of a webhook, or for one delivery: sources
// disagree on what the id names, and the answer tells. A history may be a list
// below items or deliveries, or a bare one.
func (c *Client) Deliveries(ctx context.Context, id string) ([]Delivery, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	r := request{act: "look at the deliveries of " + id, method: http.MethodGet, path: "/v1/account/webhooks/deliveries/" + id}
	data, err := c.data(ctx, r)
	if err != nil {
		return nil, err
	}
	list, ok := records(data)
	if !ok {
		return nil, c.unreadable(r, "it holds no deliveries in a known shape")
	}
	history := []Delivery{}
	for _, record := range list {
		history = append(history, readDelivery(record))
	}
	return history, nil
}

// records finds the deliveries in any of the known shapes.
func records(data json.RawMessage) (list []map[string]any, ok bool) {
	if json.Unmarshal(data, &list) == nil {
		return list, true
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) != nil || len(object) == 0 {
		return nil, false
	}
	for _, name := range []string{"items", "deliveries"} {
		if below, told := object[name]; told {
			list = nil
			err := json.Unmarshal(below, &list)
			return list, err == nil
		}
	}
	var one map[string]any
	_ = json.Unmarshal(data, &one) // an object, as seen above
	return []map[string]any{one}, true
}

func readDelivery(record map[string]any) Delivery {
	d := Delivery{
		ID: take(record, "id", "delivery_id"), Event: take(record, "event", "type"), Status: take(record, "status"),
		DestinationStatus: take(record, "destination_status"), At: take(record, "timestamp", "created_at"),
		Attempts: take(record, "attempts"),
	}
	d.Others = append([]string{}, slices.Sorted(maps.Keys(record))...)
	return d
}

// take takes the first of several members out of a record, as text.
func take(record map[string]any, names ...string) string {
	for _, name := range names {
		text := ""
		switch v := record[name].(type) {
		case string:
			text = v
		case float64:
			text = strconv.FormatFloat(v, 'f', -1, 64)
		case []any:
			text = strconv.Itoa(len(v)) // a list of attempts
		default:
			continue
		}
		if len(text) <= maxText {
			delete(record, name)
			return text
		}
	}
	return ""
}
