package consumer_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

// queueFunc answers the requests of a loop without a network.
type queueFunc func(act string) (status int, body string)

func (f queueFunc) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := f(strings.TrimPrefix(r.URL.Path, "/v1/queue/"))
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// noDatabase is a database that takes every claim and forgets it.
type noDatabase struct{}

func (noDatabase) BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error) { return noTx{}, nil }

type noTx struct{ pgx.Tx }

func (noTx) QueryRow(_ context.Context, query string, _ ...any) pgx.Row {
	return noRow(!strings.Contains(query, "read_only"))
}
func (noTx) Commit(context.Context) error   { return nil }
func (noTx) Rollback(context.Context) error { return nil }

type noRow bool

func (r noRow) Scan(dest ...any) error {
	*dest[0].(*bool) = bool(r)
	return nil
}

// While all that is tried fails, the loop tries ever less: an hour of that costs
// messages as many deliveries as there are pauses, not as the queue can give.
// When one gets through, it is back at full speed.
func TestLoop_TriesLessWhileAllFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		var deliveries atomic.Int64
		broken.Store(true)
		c := &consumer.Consumer{Name: "books", DB: noDatabase{}, Handler: func(ctx context.Context, _ pgx.Tx, _ consumer.Message) error {
			deliveries.Add(1)
			if broken.Load() {
				return errBroken
			}
			<-time.After(time.Second)
			return ctx.Err()
		}}
		queue := consumer.Queue{
			BaseURL: "http://queue", Name: "books", APIKey: func() string { return "key" },
			Client: &http.Client{Transport: queueFunc(func(act string) (int, string) {
				if act == "consume" {
					return http.StatusOK, `{"ok":true,"data":{"items":[{"message_id":"m","payload":{"event_id":"e-1"}}]}}`
				}
				return http.StatusOK, `{"ok":true,"data":{}}`
			})},
		}
		loop, err := consumer.NewLoop(c, queue, consumer.Plain(consumer.Field("event_id")), consumer.LoopConfig{Concurrency: 1})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- loop.Run(ctx) }()

		<-time.After(time.Hour)
		if got := deliveries.Swap(0); got < 120 || got > 300 { // pauses of 15 to 30 s, after a few shorter ones
			t.Errorf("%d deliveries in an hour of failures", got)
		}
		broken.Store(false)
		<-time.After(time.Minute)
		if got := deliveries.Load(); got < 29 || got > 60 { // one a second, after the last pause
			t.Errorf("%d deliveries in the minute after it", got)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A queue that is away is asked ever less, and one that asks for a pause gets it.
func TestLoop_PausesForTheQueue(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		header      http.Header
		least, most int64 // requests in an hour
	}{
		"away":                     {nil, 120, 300},
		"asks for a minute":        {http.Header{"Retry-After": {"60"}}, 59, 61},
		"asks for a day":           {http.Header{"Retry-After": {"86400"}}, 12, 13},
		"asks for what is no time": {http.Header{"Retry-After": {"NaN"}}, 120, 300},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var requests atomic.Int64
				c := &consumer.Consumer{Name: "books", DB: noDatabase{}, Handler: book}
				queue := consumer.Queue{
					BaseURL: "http://queue", Name: "books", APIKey: func() string { return "key" },
					Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
						requests.Add(1)
						if test.header == nil {
							return nil, errors.New("no route")
						}
						return &http.Response{StatusCode: http.StatusTooManyRequests, Header: test.header, Body: http.NoBody, Request: r}, nil
					})},
				}
				loop, err := consumer.NewLoop(c, queue, consumer.CloudEvents, consumer.LoopConfig{})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- loop.Run(ctx) }()
				<-time.After(time.Hour)
				if got := requests.Load(); got < test.least || got > test.most {
					t.Errorf("%d requests in an hour, want %d to %d", got, test.least, test.most)
				}
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
