package consumer_test

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

// serve starts a receiver on a server of its own, and returns its address.
func serve(t *testing.T, c *consumer.Consumer, sender consumer.Sender, config consumer.ReceiverConfig) string {
	t.Helper()
	if config.Now == nil {
		config.Now = func() time.Time { return noon }
	}
	receiver, err := consumer.NewReceiver(c, sender, config)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(receiver)
	t.Cleanup(web.Close)
	return web.URL
}

// deliver sends a delivery and returns its answer.
func deliver(t *testing.T, url string, h http.Header, body string) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = h
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

// with adds headers to a copy of some.
func with(h http.Header, pairs ...string) http.Header {
	h = h.Clone()
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// Each sender's delivery is handled once, with its id, and its repeats are
// answered with success.
func TestReceiver_Senders(t *testing.T) {
	t.Parallel()
	const event = `{"specversion":"1.0","id":"order-1-placed","source":"shop","type":"orders","data":{"n":1}}`
	const stripe = `{"id":"evt_1","object":"event","type":"invoice.paid","created":1772366400,"data":{}}`
	free := consumer.Signature{Header: "X-Sig", Prefixes: []string{"v1:"}, Encoding: consumer.Base64, Secrets: consumer.Fixed("s")}
	secrets := consumer.Fixed("s")
	for name, test := range map[string]struct {
		sender  consumer.Sender
		header  http.Header
		body    string
		id      string
		kind    string
		message string
	}{
		"infrai push": {
			consumer.Infrai(secrets, consumer.CloudEvents),
			header("X-Infrai-Signature", schemes["infrai"].sign("s", `{"message_id":"msg_7","payload":`+event+`}`)),
			`{"message_id":"msg_7","payload":` + event + `}`, "order-1-placed", "orders", "msg_7",
		},
		"infrai, the payload alone": {
			consumer.Infrai(secrets, consumer.CloudEvents), header("X-Infrai-Signature", schemes["infrai, bare"].sign("s", event)),
			event, "order-1-placed", "orders", "",
		},
		"stripe": {consumer.Stripe(secrets), header("Stripe-Signature", stripeHeader(noon, "s", stripe)), stripe, "evt_1", "invoice.paid", ""},
		"shopify": {
			consumer.Shopify(secrets),
			with(header("X-Shopify-Hmac-Sha256", schemes["shopify"].sign("s", `{"id":1}`)), "X-Shopify-Event-Id", "98880550-7158", "X-Shopify-Topic", "orders/create"),
			`{"id":1}`, "98880550-7158", "orders/create", "",
		},
		"github": {
			consumer.GitHub(secrets),
			with(header("X-Hub-Signature-256", schemes["github"].sign("s", `{}`)), "X-GitHub-Delivery", "72d3162e-cc78", "X-GitHub-Event", "push"),
			`{}`, "72d3162e-cc78", "push", "",
		},
		"free, id in the body": {
			consumer.Sender{Verify: free.Verify, Read: consumer.BodyID(consumer.Plain(consumer.Field("event", "id")))},
			header("X-Sig", "v1:"+schemes["shopify"].sign("s", `{"event":{"id":7}}`)), `{"event":{"id":7}}`, "7", "", "",
		},
		"free, id in a header, unsigned": {
			consumer.Sender{Verify: consumer.Unsigned, Read: consumer.HeaderID("X-Event")}, header("X-Event", "e-1"), "a=b", "e-1", "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			var got consumer.Message
			url := serve(t, l.once(func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
				got = m
				return book(ctx, tx, m)
			}), test.sender, consumer.ReceiverConfig{})
			for range 3 {
				if status, text := deliver(t, url, test.header, test.body); status != http.StatusOK || text != "" {
					t.Errorf("%d %q, want 200", status, text)
				}
			}
			if got.ID != test.id || got.Type != test.kind || got.QueueMessageID != test.message || got.Header == nil {
				t.Errorf("%+v, want id %s, type %q, queue's id %q", got, test.id, test.kind, test.message)
			}
			l.want(1, 1)
		})
	}
}

// 32 deliveries of one event at once: all are answered with success, and there is
// one change.
func TestReceiver_ConcurrentDeliveries(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	url := serve(t, l.once(book), consumer.GitHub(consumer.Fixed("s")), consumer.ReceiverConfig{})
	h := with(header("X-Hub-Signature-256", schemes["github"].sign("s", `{}`)), "X-GitHub-Delivery", "d-1")
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			if status, _ := deliver(t, url, h, `{}`); status != http.StatusOK {
				t.Errorf("%d, want 200", status)
			}
		})
	}
	all.Wait()
	l.want(1, 1)
}

// What is not to be trusted or not to be read is refused, and never gets near the
// database.
func TestReceiver_NeverClaimsWhatItRefuses(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.pool.Close() // any use of it would be answered with 503
	signed := func(body string) http.Header {
		return header("X-Hub-Signature-256", "sha256="+hex.EncodeToString(sum("s", body)))
	}
	const delivery = "X-GitHub-Delivery"
	huge := `{"pad":"` + strings.Repeat("x", 2000) + `"}`
	for name, test := range map[string]struct {
		header http.Header
		body   string
		want   int
	}{
		"unsigned":               {header(delivery, "d-1"), `{}`, http.StatusUnauthorized},
		"another's":              {with(header("X-Hub-Signature-256", schemes["github"].sign("x", `{}`)), delivery, "d-1"), `{}`, http.StatusUnauthorized},
		"a changed body":         {with(signed(`{}`), delivery, "d-1"), `{"n":1}`, http.StatusUnauthorized},
		"unsigned and no JSON":   {header(delivery, "d-1"), `{`, http.StatusUnauthorized},
		"no id":                  {signed(`{}`), `{}`, http.StatusBadRequest},
		"an empty id":            {with(signed(`{}`), delivery, ""), `{}`, http.StatusBadRequest},
		"two ids":                {with(signed(`{}`), delivery, "d-1", delivery, "d-2"), `{}`, http.StatusBadRequest},
		"an id that is too long": {with(signed(`{}`), delivery, strings.Repeat("d", outbox.MaxEventIDBytes+1)), `{}`, http.StatusBadRequest},
		"no JSON":                {with(signed(`{`), delivery, "d-1"), `{`, http.StatusBadRequest},
		"a form":                 {with(signed(`payload=%7B%7D`), delivery, "d-1"), `payload=%7B%7D`, http.StatusBadRequest},
		"no body":                {with(signed(``), delivery, "d-1"), ``, http.StatusBadRequest},
		"a body that is huge":    {with(signed(huge), delivery, "d-1"), huge, http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reports := make(chan consumer.Report, 1)
			url := serve(t, l.once(book), consumer.GitHub(consumer.Fixed("s")), consumer.ReceiverConfig{
				MaxBody: 1000, Report: func(r consumer.Report) { reports <- r },
			})
			if status, _ := deliver(t, url, test.header, test.body); status != test.want {
				t.Errorf("%d, want %d", status, test.want)
			}
			if report := <-reports; report.Outcome != consumer.Refused || report.Err == nil {
				t.Errorf("reported %s, %v", report.Outcome, report.Err)
			}
		})
	}
}

func TestReceiver_Method(t *testing.T) {
	t.Parallel()
	receiver, err := consumer.NewReceiver(newLedger(t).once(book), consumer.GitHub(consumer.Fixed("s")), consumer.ReceiverConfig{})
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	receiver.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	if answer.Code != http.StatusMethodNotAllowed || answer.Header().Get("Allow") != http.MethodPost {
		t.Errorf("%d, %v", answer.Code, answer.Header())
	}
}

// free is a sender that trusts everybody.
func free() consumer.Sender {
	return consumer.Sender{Verify: consumer.Unsigned, Read: consumer.BodyID(consumer.Plain(consumer.Field("id")))}
}

// What fails is answered so that the sender does the right thing, tells nothing of
// our insides, and leaves no claim.
func TestReceiver_Failures(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fail   func() error
		status int
		text   string
	}{
		"an error":          {func() error { return errors.New("password is secret") }, http.StatusServiceUnavailable, "try again later\n"},
		"a panic":           {func() error { panic("secret") }, http.StatusServiceUnavailable, "try again later\n"},
		"a permanent error": {func() error { return consumer.Permanent(errors.New("secret")) }, http.StatusUnprocessableEntity, "refused\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			var calls atomic.Int32
			url := serve(t, l.once(func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
				if err := book(ctx, tx, m); err != nil || calls.Add(1) > 1 {
					return err
				}
				return test.fail()
			}), free(), consumer.ReceiverConfig{})
			if status, text := deliver(t, url, nil, `{"id":"e-1"}`); status != test.status || text != test.text {
				t.Errorf("%d %q, want %d %q", status, text, test.status, test.text)
			}
			l.want(0, 0)
			if status, _ := deliver(t, url, nil, `{"id":"e-1"}`); status != http.StatusOK {
				t.Errorf("the next delivery: %d", status)
			}
			l.want(1, 1)
		})
	}
}

// A database that is away, and a secret that is not set, are no reason for the
// sender to give up.
func TestReceiver_TheSenderShouldTryAgain(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	url := serve(t, l.once(book), consumer.GitHub(consumer.Fixed("")), consumer.ReceiverConfig{})
	h := with(header("X-Hub-Signature-256", schemes["github"].sign("", `{}`)), "X-GitHub-Delivery", "d-1")
	if status, _ := deliver(t, url, h, `{}`); status != http.StatusServiceUnavailable {
		t.Errorf("without a secret: %d, want 503", status)
	}
	l.want(0, 0)
	url = serve(t, l.once(book), free(), consumer.ReceiverConfig{})
	l.pool.Close()
	if status, _ := deliver(t, url, nil, `{"id":"e-1"}`); status != http.StatusServiceUnavailable {
		t.Errorf("without a database: %d, want 503", status)
	}
}

// A handler is not waited for longer than the timeout.
func TestReceiver_Timeout(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	url := serve(t, l.once(func(ctx context.Context, tx pgx.Tx, _ consumer.Message) error {
		_, err := tx.Exec(ctx, "select pg_sleep(60)")
		return err
	}), free(), consumer.ReceiverConfig{Timeout: 20 * time.Millisecond})
	if status, _ := deliver(t, url, nil, `{"id":"e-1"}`); status != http.StatusServiceUnavailable {
		t.Errorf("%d, want 503", status)
	}
	l.want(0, 0)
}

// The sender hangs up during the work: the work is done, and the repeat is one.
func TestReceiver_SenderHangsUp(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	begun, release := make(chan struct{}), make(chan struct{})
	reports := make(chan consumer.Report, 2)
	url := serve(t, l.once(func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		close(begun)
		<-release
		return book(ctx, tx, m)
	}), free(), consumer.ReceiverConfig{Report: func(r consumer.Report) { reports <- r }})
	ctx, hangUp := context.WithCancel(context.Background())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"id":"e-1"}`))
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if response, err := http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
			t.Error("an answer came")
		}
	}()
	<-begun
	hangUp()
	<-gone
	close(release)
	if report := <-reports; report.Outcome != consumer.Handled || report.Err != nil {
		t.Errorf("%s, %v", report.Outcome, report.Err)
	}
	if status, _ := deliver(t, url, nil, `{"id":"e-1"}`); status != http.StatusOK {
		t.Errorf("the repeat: %d", status)
	}
	l.want(1, 1)
}

// A repeat is answered with what was stored at the first delivery.
func TestReceiver_AnswerResult(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	url := serve(t, l.once(func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		return errors.Join(book(ctx, tx, m), outbox.Complete(ctx, tx, "books", m.ID, map[string]int{"entry": 7}))
	}), free(), consumer.ReceiverConfig{AnswerResult: true})
	for range 2 {
		if status, text := deliver(t, url, nil, `{"id":"e-1"}`); status != http.StatusOK || text != `{"entry": 7}` {
			t.Errorf("%d %q", status, text)
		}
	}
	l.want(1, 1)
}

// A secret is rotated while deliveries come: both are good for a while, then only
// the new one.
func TestReceiver_SecretIsRotated(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	var secrets atomic.Pointer[[]string]
	url := serve(t, l.once(book), consumer.Stripe(func() []string { return *secrets.Load() }), consumer.ReceiverConfig{})
	for _, step := range []struct {
		secrets []string
		want    map[string]int
	}{
		{[]string{"old"}, map[string]int{"old": 200, "new": 401}},
		{[]string{"new", "old"}, map[string]int{"old": 200, "new": 200}},
		{[]string{"new"}, map[string]int{"old": 401, "new": 200}},
	} {
		secrets.Store(&step.secrets)
		for secret, want := range step.want {
			if got, _ := deliver(t, url, header("Stripe-Signature", stripeHeader(noon, secret, signedBody)), signedBody); got != want {
				t.Errorf("%v, signed with %s: %d, want %d", step.secrets, secret, got, want)
			}
		}
	}
	l.want(1, 1)
}

func TestNewReceiver_ReportsEverything(t *testing.T) {
	t.Parallel()
	_, err := consumer.NewReceiver(&consumer.Consumer{}, consumer.Sender{}, consumer.ReceiverConfig{MaxBody: -1})
	for _, want := range []string{"Name", "DB", "Handler", "Verify", "Read", "MaxBody"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
