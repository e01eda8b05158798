package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

func TestMain(m *testing.M) {
	pgtest.Main(m, func() error { return goleak.Find() })
}

const patienceOfTests = time.Minute

// newDesk is a desk with a pool of so many connections.
func newDesk(t *testing.T, connections int32) *Desk {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgtest.Migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), Tables); err != nil {
		t.Fatal(err)
	}
	return &Desk{DB: pool}
}

// serve is a target.
func serve(t *testing.T, target http.HandlerFunc) (url string) {
	t.Helper()
	server := httptest.NewServer(target)
	t.Cleanup(server.Close)
	return server.URL
}

// deliver hands over the instruction for a reply, as a queue does.
func (d *Desk) deliver(t *testing.T, reply string) (consumer.Outcome, error) {
	t.Helper()
	var payload []byte
	if err := d.DB.QueryRow(t.Context(), `select payload from outbox.messages where key = $1`, key(reply)).Scan(&payload); err != nil {
		t.Fatal(err)
	}
	m, err := consumer.Plain(consumer.Field("event_id"))(payload)
	if err != nil {
		t.Fatal(err)
	}
	c := &consumer.Consumer{Name: Name, DB: d.DB, Handler: d.handle}
	return c.Handle(t.Context(), m)
}

func (d *Desk) count(t *testing.T, sql string) (n int) {
	t.Helper()
	if err := d.DB.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// An agent who withdraws a reply while it is posted waits for the answer, and then
// is told which it was.
func TestWithdraw_WaitsForTheRequest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status  int
		outcome consumer.Outcome
		err     error
	}{
		"taken":   {http.StatusOK, consumer.Handled, ErrTooLate},
		"refused": {http.StatusGone, consumer.Handled, ErrTooLate},
		"busy":    {http.StatusServiceUnavailable, consumer.Failed, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, 4)
			posted, answer := make(chan struct{}), make(chan struct{})
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				posted <- struct{}{}
				<-answer
				w.WriteHeader(test.status)
			})
			if err := d.Answer(t.Context(), Reply{ID: "a", Target: url, Text: "text"}); err != nil {
				t.Fatal(err)
			}
			outcomes, withdrawn := make(chan consumer.Outcome, 1), make(chan error, 1)
			go func() {
				outcome, _ := d.deliver(t, "a")
				outcomes <- outcome
			}()
			<-posted
			go func() { withdrawn <- d.Withdraw(context.Background(), "a") }()
			pgtest.Eventually(t, patienceOfTests, func() error {
				if d.count(t, `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`) != 1 {
					return errors.New("the agent does not wait")
				}
				return nil
			})
			close(answer)
			if got := <-outcomes; got != test.outcome {
				t.Errorf("the instruction was %s, want %s", got, test.outcome)
			}
			if err := <-withdrawn; !errors.Is(err, test.err) {
				t.Errorf("withdraw: %v, want %v", err, test.err)
			}
			if test.err != nil {
				return
			}
			if n := d.count(t, `select count(*) from outbox.messages`); n != 0 {
				t.Errorf("%d messages, want none", n)
			}
		})
	}
}

// The number of instructions at work follows from the pool: none waits for a
// connection that only another one could give back.
func TestWork_PoolIsEnough(t *testing.T) {
	t.Parallel()
	const replies = 40
	for _, connections := range []int32{2, 3, 8} {
		t.Run(fmt.Sprint(connections), func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, connections)
			queue := emulator.New(emulator.Config{Queues: []string{Replies}})
			t.Cleanup(queue.Close)
			base := serve(t, queue.ServeHTTP)
			url := serve(t, func(http.ResponseWriter, *http.Request) {})
			for i := range replies {
				id := fmt.Sprint(i)
				if err := d.Answer(t.Context(), Reply{ID: id, Target: url, Text: "text"}); err != nil {
					t.Fatal(err)
				}
				d.publish(t, base, id)
			}
			d.Queue = consumer.Queue{BaseURL: base, Name: Replies, APIKey: func() string { return "key" }}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- d.Work(ctx) }()
			pgtest.Eventually(t, patienceOfTests, func() error {
				if n := queue.Counters().Acked; n != replies {
					return fmt.Errorf("%d acked, want %d", n, replies)
				}
				return nil
			})
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if n := d.count(t, `select count(*) from replies where state = 'sent'`); n != replies {
				t.Errorf("%d sent, want %d", n, replies)
			}
		})
	}
}

func TestWork_OneConnection(t *testing.T) {
	t.Parallel()
	if err := newDesk(t, 1).Work(t.Context()); err == nil {
		t.Error("a pool of one connection is taken")
	}
}

// publish does what the relay does.
func (d *Desk) publish(t *testing.T, base, reply string) {
	t.Helper()
	var payload json.RawMessage
	if err := d.DB.QueryRow(t.Context(), `select payload from outbox.messages where key = $1`, key(reply)).Scan(&payload); err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(map[string]any{"queue": Replies, "payload": payload})
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/queue/publish", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer key")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("publish: %s", response.Status)
	}
}

// A text that was changed or removed under way is not sent, and that is noticed.
func TestHandle_TextIsGone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sql  string
		want consumer.Outcome
	}{
		"changed": {`update replies set body = 'other'`, consumer.Refused},
		"removed": {`update replies set body = null`, consumer.Refused},
		"deleted": {`delete from replies`, consumer.Failed}, // or not visible yet
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, 2)
			url := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the target got something") })
			if err := d.Answer(t.Context(), Reply{ID: "a", Target: url, Text: "text"}); err != nil {
				t.Fatal(err)
			}
			if _, err := d.DB.Exec(t.Context(), test.sql); err != nil {
				t.Fatal(err)
			}
			if outcome, err := d.deliver(t, "a"); outcome != test.want || err == nil {
				t.Errorf("%s, %v, want %s", outcome, err, test.want)
			}
		})
	}
}

func TestAnswer_MayPass(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{
		301: false, 400: false, 401: false, 404: false, 408: true, 409: false, 410: false, 422: false, 425: true, 429: true, 500: true, 503: true,
	} {
		if got := (&answer{status: status}).mayPass(); got != want {
			t.Errorf("%d may pass: %t", status, got)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{
		"": 0, "soon": 0, "-3": 0, "1.5": 0, "0": 0, "45": 45 * time.Second, "99999999999999999999": 0,
	} {
		if got := retryAfter(value); got != want {
			t.Errorf("%q is %s, want %s", value, got, want)
		}
	}
	date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	if got := retryAfter(date); got < 59*time.Minute || got > time.Hour {
		t.Errorf("a date in an hour is %s", got)
	}
}

func TestPatience(t *testing.T) {
	t.Parallel()
	for attempt, want := range map[int]time.Duration{1: 30 * time.Second, 2: time.Minute, 7: 32 * time.Minute, 8: time.Hour, 1000: time.Hour} {
		if got := patience(attempt); got != want {
			t.Errorf("after attempt %d: %s, want %s", attempt, got, want)
		}
	}
}
