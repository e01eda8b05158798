package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// apiKey is the key that the relay and the consumer show; the emulator takes
// any.
const apiKey = "demo"

// queueClient talks to the queue the way a consumer does, and to the routes
// that only the emulator has.
type queueClient struct {
	base string
	http *http.Client
}

func newQueueClient(base string) *queueClient {
	return &queueClient{base: base, http: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
}

func (q *queueClient) close() { q.http.CloseIdleConnections() }

// delivery is a consumed message.
type delivery struct {
	ID      string `json:"message_id"`
	Payload struct {
		Event string `json:"event"`
	} `json:"payload"`
}

// consume leases up to most messages.
func (q *queueClient) consume(ctx context.Context, name string, most int, lease time.Duration) ([]delivery, error) {
	var data struct {
		Items []delivery `json:"items"`
	}
	err := q.call(ctx, http.MethodPost, "/v1/queue/consume", map[string]any{
		"queue": name, "max_messages": most, "visibility_timeout": int(lease / time.Second),
	}, &data)
	return data.Items, err
}

// ack deletes a message that was handled. One that is not there any more was
// deleted before.
func (q *queueClient) ack(ctx context.Context, name, id string) error {
	err := q.call(ctx, http.MethodPost, "/v1/queue/ack", map[string]any{"queue": name, "message_id": id}, nil)
	var refused *refusedError
	if errors.As(err, &refused) && refused.status == http.StatusNotFound {
		return nil
	}
	return err
}

// left is how many messages the queue still has, leased ones included.
func (q *queueClient) left(ctx context.Context, name string) (int, error) {
	var stats struct {
		Ready    int `json:"ready"`
		Delayed  int `json:"delayed"`
		InFlight int `json:"in_flight"`
	}
	err := q.call(ctx, http.MethodGet, "/v1/queue/stats/"+url.PathEscape(name), nil, &stats)
	return stats.Ready + stats.Delayed + stats.InFlight, err
}

// misbehave scripts faults.
func (q *queueClient) misbehave(ctx context.Context, faults ...emulator.Fault) error {
	_, err := q.do(ctx, http.MethodPost, "/_emulator/faults", faults)
	return err
}

func (q *queueClient) counters(ctx context.Context) (c emulator.Counters, err error) {
	return c, q.read(ctx, "/_emulator/counters", &c)
}

// journal returns the requests behind a number, oldest first.
func (q *queueClient) journal(ctx context.Context, after uint64) ([]emulator.Entry, error) {
	var page struct {
		Entries []emulator.Entry `json:"entries"`
	}
	err := q.read(ctx, "/_emulator/journal?after="+strconv.FormatUint(after, 10), &page)
	return page.Entries, err
}

func (q *queueClient) read(ctx context.Context, path string, into any) error {
	answer, err := q.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, into)
}

// call makes a call of the queue and takes the data out of its envelope.
func (q *queueClient) call(ctx context.Context, method, path string, body, into any) error {
	answer, err := q.do(ctx, method, path, body)
	if err != nil || into == nil {
		return err
	}
	envelope := struct {
		Data any `json:"data"`
	}{into}
	return json.Unmarshal(answer, &envelope)
}

// do sends a request and returns the body of a success.
func (q *queueClient) do(ctx context.Context, method, path string, body any) ([]byte, error) {
	text := []byte(nil)
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, q.base+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+apiKey)
	response, err := q.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, &refusedError{method, path, response.StatusCode}
	}
	return answer, nil
}

// refusedError says that the queue said no.
type refusedError struct {
	method, path string
	status       int
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("%s %s: status %d", e.method, e.path, e.status)
}
