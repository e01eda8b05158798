package emulator

import (
	"net/http"
	"strings"
)

// route is one call of the queue.
type route struct {
	id      string // its name in discovery
	method  string
	path    string
	summary string
	// names is what stands behind the path: a queue, an id, or nothing.
	names string
	// idempotent routes remember keys for 24 hours.
	idempotent bool
	// open routes need no key.
	open bool
	// assumed routes are not described by the queue's documentation.
	assumed bool
	fields  []field
	serve   func(*Server, *call) answer
}

// routes are the calls of the queue.
var routes = []*route{
	{
		id: "queue.publish", method: http.MethodPost, path: "/v1/queue/publish", idempotent: true,
		summary: "Put one message into a queue.", fields: publishFields, serve: (*Server).publish,
	},
	{
		id: "queue.publish_batch", method: http.MethodPost, path: "/v1/queue/publish_batch", idempotent: true, assumed: true,
		summary: "Put several messages into a queue, all or none.", fields: batchFields, serve: (*Server).publishBatch,
	},
	{
		id: "queue.consume", method: http.MethodPost, path: "/v1/queue/consume",
		summary: "Lease messages.", fields: consumeFields, serve: (*Server).consume,
	},
	{
		id: "queue.ack", method: http.MethodPost, path: "/v1/queue/ack", idempotent: true,
		summary: "Delete a message that was handled.", fields: ackFields, serve: (*Server).ack,
	},
	{
		id: "queue.nack", method: http.MethodPost, path: "/v1/queue/nack", idempotent: true, assumed: true,
		summary: "Give a message back for another try.", fields: nackFields, serve: (*Server).nack,
	},
	{
		id: "queue.create", method: http.MethodPost, path: "/v1/queue/create", idempotent: true,
		summary: "Create a queue.", fields: createFields, serve: (*Server).create,
	},
	{
		id: "queue.list", method: http.MethodGet, path: "/v1/queue/list",
		summary: "List the queues.", serve: (*Server).list,
	},
	{
		id: "queue.get", method: http.MethodGet, path: "/v1/queue/get/", names: aQueue,
		summary: "Describe a queue.", serve: (*Server).get,
	},
	{
		id: "queue.stats", method: http.MethodGet, path: "/v1/queue/stats/", names: aQueue, assumed: true,
		summary: "Count the messages of a queue.", serve: (*Server).stats,
	},
	{
		id: "queue.delete", method: http.MethodDelete, path: "/v1/queue/delete/", names: aQueue,
		summary: "Delete a queue and its messages.", serve: (*Server).delete,
	},
	{
		id: "queue.dlq.list", method: http.MethodGet, path: "/v1/queue/dlq/list/", names: aQueue, assumed: true,
		summary: "List the dead letters of a queue.", serve: (*Server).listDeadLetters,
	},
	{
		id: "queue.dlq.redrive", method: http.MethodPost, path: "/v1/queue/dlq/redrive/", names: aQueue, idempotent: true,
		summary: "Put the dead letters of a queue back.", fields: redriveFields, serve: (*Server).redrive,
	},
	{
		id: "account.webhooks.deliveries", method: http.MethodGet, path: "/v1/account/webhooks/deliveries/", names: anID, assumed: true,
		summary: "Tell the deliveries of a webhook, or one delivery.", serve: (*Server).listDeliveries,
	},
}

// What a path can name.
const (
	aQueue = "queue"
	anID   = "id"
)

const discoveryPath = "/v1/discovery"

// discoveryRoute tells what there is. Its answers have no envelope.
var discoveryRoute = &route{id: "discovery", method: http.MethodGet, path: discoveryPath, open: true, serve: (*Server).discover}

// findRoute returns the route of a path and the queue that the path names.
func findRoute(path string) (r *route, queue string) {
	for _, r := range routes {
		if r.names == "" && path == r.path {
			return r, ""
		}
		rest, found := strings.CutPrefix(path, r.path)
		if !found || r.names == "" || rest == "" || strings.Contains(rest, "/") {
			continue
		}
		if r.names == aQueue {
			return r, rest
		}
		return r, ""
	}
	return nil, ""
}
