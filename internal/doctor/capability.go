package doctor

import (
	"net/http"

	"github.com/outbox-relay/outbox-relay/internal/capability"
	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
)

// smallestRequest is a message with the fields that every request has.
var smallestRequest = outbox.Row{Key: "doctor-1", Queue: "orders", Payload: `{"type": "probe"}`}

// publishDoubts are what discovery says about publishing that the relay does not
// expect. At run time nothing depends on it.
func publishDoubts(answer []byte) []string {
	described, err := capability.Parse(answer)
	if err != nil {
		return []string{"the description of queue.publish is not the expected JSON"}
	}
	body, err := infrai.AppendBody(nil, &smallestRequest)
	if err != nil {
		return []string{err.Error()}
	}
	return described.Doubts(capability.Call{
		ID: "queue.publish", Method: http.MethodPost, Path: "/v1/queue/publish",
		Requests: []capability.Request{{Name: "smallest", Body: body}},
	})
}
