package emulator_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// sendOrder stands for the application's own code: it publishes one message and
// reports the status.
func sendOrder(ctx context.Context, base, key string) (int, error) {
	body := fmt.Sprintf(`{"idempotency_key":%q,"payload":{"order":17},"queue":"orders"}`, key)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/queue/publish", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer any-key")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// A test of an application starts an emulator of its own, lets the application
// publish to it, and looks at what arrived.
func Example() {
	queue := emulator.New(emulator.Config{Queues: []string{"orders"}})
	defer queue.Close()
	web := httptest.NewServer(queue)
	defer web.Close()

	if _, err := sendOrder(context.Background(), web.URL, "order:17"); err != nil {
		fmt.Println(err)
	}
	for _, m := range queue.Accepted("orders") {
		fmt.Println(m.Key, string(m.Payload))
	}
	// Output:
	// order:17 {"order":17}
}

// The queue takes the message, but the answer says that something broke. What
// does the application do at its next attempt? With the same key, the queue has
// the message once.
func ExampleServer_AddFault() {
	queue := emulator.New(emulator.Config{Queues: []string{"orders"}})
	defer queue.Close()
	web := httptest.NewServer(queue)
	defer web.Close()

	_, err := queue.AddFault(emulator.Fault{Route: "queue.publish", Count: 1, Store: true, Status: http.StatusBadGateway})
	if err != nil {
		fmt.Println(err)
	}
	for range 2 {
		status, err := sendOrder(context.Background(), web.URL, "order:17")
		fmt.Println(status, err)
	}
	fmt.Println("accepted:", queue.Counters().Accepted)
	// Output:
	// 502 <nil>
	// 200 <nil>
	// accepted: 1
}

// The queue remembers a key for a day. Moving its clock shows what happens to a
// message that goes out again later than that.
func ExampleClock_Advance() {
	queue := emulator.New(emulator.Config{Queues: []string{"orders"}})
	defer queue.Close()
	web := httptest.NewServer(queue)
	defer web.Close()

	for range 2 {
		if _, err := sendOrder(context.Background(), web.URL, "order:17"); err != nil {
			fmt.Println(err)
		}
		if err := queue.Clock().Advance(25 * time.Hour); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("accepted:", queue.Counters().Accepted)
	// Output:
	// accepted: 2
}
