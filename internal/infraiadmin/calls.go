package infraiadmin

import (
	"net/http"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-relay/outbox-relay/internal/capability"
	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
)

const createPath = "/v1/queue/create"

// Calls are those that outbox-relay makes, with the bodies that it sends: the
// smallest, and one with every field.
func Calls() []capability.Call {
	return []capability.Call{
		{
			ID: "queue.publish", Method: http.MethodPost, Path: "/v1/queue/publish",
			Requests: []capability.Request{
				publishRequest("smallest", outbox.Row{}),
				publishRequest("fullest", outbox.Row{
					DelaySeconds: pgtype.Int4{Int32: 300, Valid: true}, Priority: pgtype.Int4{Int32: 5, Valid: true},
				}),
			},
		},
		{
			ID: "queue.create", Method: http.MethodPost, Path: createPath,
			Requests: []capability.Request{
				{Name: "smallest", Body: createBody("orders", Settings{Type: "standard"}, "provision:1")},
				{Name: "fullest", Body: createBody("orders", Settings{
					Type: "fifo", DeadLetterQueue: "orders-dlq", MaxRetries: new(5), RetentionDays: new(14),
					VisibilityTimeout: new(60), EnablePriority: true,
				}, "provision:1")},
			},
		},
		{ID: "queue.get", Method: http.MethodGet, Path: "/v1/queue/get/{queue}"},
		{ID: "queue.list", Method: http.MethodGet, Path: "/v1/queue/list"},
		{ID: "queue.stats", Method: http.MethodGet, Path: "/v1/queue/stats/{queue}"},
		{ID: "account.webhooks.deliveries", Method: http.MethodGet, Path: "/v1/account/webhooks/deliveries/{id}"},
	}
}

// publishRequest is the request that publishes a message with what row adds.
func publishRequest(name string, row outbox.Row) capability.Request {
	row.Key, row.Queue, row.Payload = "discover-1", "orders", `{"type":"probe"}`
	body, err := infrai.AppendBody(nil, &row)
	if err != nil {
		panic(err) // a row that can be sent
	}
	return capability.Request{Name: name, Body: body}
}

// CallOf returns how outbox-relay makes a call, and whether it does.
func CallOf(id string) (capability.Call, bool) {
	calls := Calls()
	i := slices.IndexFunc(calls, func(c capability.Call) bool { return c.ID == id })
	if i < 0 {
		return capability.Call{}, false
	}
	return calls[i], true
}
