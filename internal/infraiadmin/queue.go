package infraiadmin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
)

// Exists asks whether there is a queue of a name.
func (c *Client) Exists(ctx context.Context, queue string) (bool, error) {
	if err := CheckQueue(queue); err != nil {
		return false, err
	}
	_, exists, err := c.describe(ctx, queue)
	return exists, err
}

// describe asks for the description of a queue. That one is missing is believed
// of an answer in an envelope only: any server at a wrong address says 404.
func (c *Client) describe(ctx context.Context, queue string) (description json.RawMessage, exists bool, err error) {
	description, err = c.data(ctx, request{act: "look at queue " + queue, method: http.MethodGet, path: "/v1/queue/get/" + queue})
	if refused, ok := errors.AsType[*Error](err); ok && refused.Problem == NotFound && refused.said {
		return nil, false, nil
	}
	return description, err == nil, err
}

// CheckKey asks for the list of queues, to see whether the API key is taken.
func (c *Client) CheckKey(ctx context.Context) error {
	_, err := c.data(ctx, request{act: "list the queues", method: http.MethodGet, path: "/v1/queue/list"})
	return err
}
