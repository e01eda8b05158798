package infrai_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// HTTP-01: the pause counts with 429 and 5xx; with another status the row's
// fate does not change with time.
func TestPublish_ReadsRetryAfter(t *testing.T) {
	t.Parallel()
	queue, base := newEmulator(t)
	p := newPublisher(t, settings(base))
	tests := []struct {
		status       int
		header       string
		class        relay.Class
		least, most  time.Duration
		moreThanOnce []string
	}{
		{status: 429, header: "4", class: relay.RateLimited, least: 4 * time.Second, most: 4 * time.Second},
		{status: 503, header: "1.5", class: relay.Transient, least: 1500 * time.Millisecond, most: 1500 * time.Millisecond},
		{status: 502, header: "4", class: relay.Transient, least: 4 * time.Second, most: 4 * time.Second},
		{status: 429, header: "imf+2m", class: relay.RateLimited, least: time.Second, most: 2 * time.Minute},
		{status: 429, header: "rfc850+2m", class: relay.RateLimited, least: time.Second, most: 2 * time.Minute},
		{status: 503, header: "asctime+2m", class: relay.Transient, least: time.Second, most: 2 * time.Minute},
		{status: 429, header: "imf-10s", class: relay.RateLimited},
		{status: 429, header: "86400", class: relay.RateLimited, least: 5 * time.Minute, most: 5 * time.Minute},
		{status: 429, moreThanOnce: []string{"4", "8"}, class: relay.RateLimited, least: 8 * time.Second, most: 8 * time.Second},
		{status: 429, class: relay.RateLimited},
		{status: 409, header: "60", class: relay.Conflict},
		{status: 400, header: "60", class: relay.Refused},
	}
	for i, test := range tests {
		key := fmt.Sprint("k", i)
		script(t, queue, emulator.Fault{
			Key: key, Status: test.status, RetryAfter: test.header, Header: http.Header{"Retry-After": test.moreThanOnce},
		})
		_, err := p.Publish(t.Context(), message(key))
		got := refusal(t, err)
		if got.Class != test.class || got.RetryAfter < test.least || got.RetryAfter > test.most {
			t.Errorf("%d with %q: class %s, pause %s, want %s and %s to %s",
				test.status, test.header, got.Class, got.RetryAfter, test.class, test.least, test.most)
		}
	}
}
