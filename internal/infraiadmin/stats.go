package infraiadmin

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
)

// Stats are the numbers of a queue. Which ones the queue tells is not
// documented: those that it does not tell are nil, those that nobody here knows
// are in Others by its own names.
type Stats struct {
	Queue string `json:"queue"`
	// Ready messages can be had now, Delayed ones later, InFlight ones are leased.
	Ready    *int64 `json:"ready"`
	Delayed  *int64 `json:"delayed"`
	InFlight *int64 `json:"in_flight"`
	// DeadLetter counts the dead letters of the queue.
	DeadLetter *int64 `json:"dead_letter"`
	// OldestReadyAge is in seconds.
	OldestReadyAge *float64       `json:"oldest_ready_age_seconds"`
	Others         map[string]any `json:"others"`
}

// Stats asks for the numbers of a queue.
func (c *Client) Stats(ctx context.Context, queue string) (*Stats, error) {
	if err := CheckQueue(queue); err != nil {
		return nil, err
	}
	r := request{act: "count queue " + queue, method: http.MethodGet, path: "/v1/queue/stats/" + queue}
	data, err := c.data(ctx, r)
	if err != nil {
		return nil, err
	}
	var told map[string]any
	if json.Unmarshal(data, &told) != nil || told == nil {
		return nil, c.unreadable(r, "it holds no numbers")
	}
	delete(told, "queue")
	s := &Stats{
		Queue: queue, Ready: count(told, "ready"), Delayed: count(told, "delayed"), InFlight: count(told, "in_flight"),
		DeadLetter: count(told, "dead_letter"), OldestReadyAge: number(told, "oldest_ready_age_seconds"),
		Others: map[string]any{},
	}
	for name, v := range told {
		if scalar(v) && len(name) <= maxCode {
			s.Others[name] = v
		}
	}
	return s, nil
}

// number takes a number out of members; one of another type stays.
func number(members map[string]any, name string) *float64 {
	n, ok := members[name].(float64)
	if !ok {
		return nil
	}
	delete(members, name)
	return &n
}

// count takes a whole number out of members.
func count(members map[string]any, name string) *int64 {
	const exact = 1 << 53 // above, a float64 skips numbers
	n, ok := members[name].(float64)
	if !ok || n != math.Trunc(n) || math.Abs(n) > exact {
		return nil
	}
	delete(members, name)
	return new(int64(n))
}

// scalar reports whether a value is a number, a boolean, null or a short text.
func scalar(v any) bool {
	switch v := v.(type) {
	case string:
		return len(v) <= maxText
	case map[string]any, []any:
		return false
	}
	return true
}
