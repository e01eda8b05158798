package consumer_test

import (
	"context"
	"encoding/json"
	"expvar"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
)

// What follows is in docs/consumers.md, to the letter.

// consume books what comes over the queue, until ctx ends.
func consume(ctx context.Context, pool *pgxpool.Pool, queue consumer.Queue) error {
	books := &consumer.Consumer{Name: "books", DB: pool, Handler: func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		var order struct{ Total json.Number }
		if err := json.Unmarshal(m.Data, &order); err != nil {
			return consumer.Permanent(err)
		}
		_, err := tx.Exec(ctx, "insert into entries (event, total) values ($1, $2)", m.ID, order.Total)
		return err
	}}
	loop, err := consumer.NewLoop(books, queue, consumer.CloudEvents, consumer.LoopConfig{})
	if err != nil {
		return err
	}
	return loop.Run(ctx)
}

// payments takes webhooks of Stripe: the invoice is paid and the mail ordered in
// one transaction, once for each event.
func payments(pool *pgxpool.Pool, secrets consumer.Secrets) (http.Handler, error) {
	invoices := &consumer.Consumer{Name: "invoices", DB: pool, Handler: func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		if m.Type != "invoice.paid" {
			return nil
		}
		var event struct {
			Data struct{ Object struct{ ID string } }
		}
		if err := json.Unmarshal(m.Data, &event); err != nil {
			return consumer.Permanent(err)
		}
		invoice := event.Data.Object.ID
		if _, err := tx.Exec(ctx, "update invoices set paid = true where id = $1", invoice); err != nil {
			return err
		}
		_, err := outbox.Enqueue(ctx, tx, outbox.Message{
			Key: "invoice-paid-" + m.ID, Queue: "mails", OrderingKey: invoice, Payload: map[string]string{"invoice": invoice},
		})
		return err
	}}
	return consumer.NewReceiver(invoices, consumer.Stripe(secrets), consumer.ReceiverConfig{})
}

// bySource keeps apart the events of several sources that choose their ids each
// for itself.
func bySource(payload []byte) (consumer.Message, error) {
	m, err := consumer.CloudEvents(payload)
	m.ID = m.Source + " " + m.ID
	return m, err
}

var partner = consumer.Sender{
	Verify: consumer.Signature{
		Header: "X-Partner-Signature", Prefixes: []string{"sha256="}, Secrets: consumer.Fixed(os.Getenv("PARTNER_SECRET")),
	}.Verify,
	Read: consumer.BodyID(consumer.Plain(consumer.Field("event", "id"))),
}

// deliveries counts what this process took, by outcome; package expvar serves it
// under /debug/vars.
var deliveries = expvar.NewMap("deliveries")

// count is the Report of a loop or of a receiver.
func count(r consumer.Report) {
	deliveries.Add(r.Outcome.String(), 1)
	deliveries.AddFloat("seconds", r.Elapsed.Seconds())
}

// either reads messages from before and after the change of an envelope.
func either(payload []byte) (consumer.Message, error) {
	if m, err := consumer.CloudEvents(payload); err == nil {
		return m, nil
	}
	return consumer.Plain(consumer.Field("event_id"))(payload)
}

// The code of the page is the code above.
func TestDocs_ShowTheCode(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/consumers.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("docs_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) != 6 {
		t.Errorf("%d blocks of code, want 6", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(string(code), string(block[1])) {
			t.Errorf("not the code that is tried:\n%s", block[1])
		}
	}
}

func TestDocs_Queue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec("create table entries (event text, total numeric)")
	for range 2 {
		r.post("publish", `{"queue":"books","payload":{"specversion":"1.0","id":"order-1-placed","source":"shop","type":"orders","data":{"total":12.50}}}`)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- consume(ctx, r.pool, r.queue()) }()
	r.acked(2)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	var total string
	if err := r.pool.QueryRow(context.Background(), "select sum(total)::text from entries").Scan(&total); total != "12.50" || err != nil {
		t.Errorf("total %s, %v, want 12.50", total, err)
	}
}

func TestDocs_Webhook(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.exec("create table invoices (id text primary key, paid boolean not null default false)")
	l.exec("insert into invoices values ('in_1')")
	receiver, err := payments(l.pool, consumer.Fixed("s"))
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(receiver)
	t.Cleanup(web.Close)
	const event = `{"id":"evt_1","type":"invoice.paid","data":{"object":{"id":"in_1"}}}`
	for range 3 {
		h := header("Stripe-Signature", stripeHeader(time.Now(), "s", event))
		if status, _ := deliver(t, web.URL, h, event); status != http.StatusOK {
			t.Errorf("%d, want 200", status)
		}
	}
	var paid bool
	var messages int
	query := "select (select paid from invoices), (select count(*) from outbox.messages where key = 'invoice-paid-evt_1')"
	if err := l.pool.QueryRow(context.Background(), query).Scan(&paid, &messages); !paid || messages != 1 || err != nil {
		t.Errorf("paid %t with %d messages, %v, want one message", paid, messages, err)
	}
}

func TestDocs_Free(t *testing.T) {
	t.Parallel()
	m, err := partner.Read(nil, []byte(`{"event":{"id":"e-1"}}`))
	if err != nil || m.ID != "e-1" {
		t.Errorf("%q, %v", m.ID, err)
	}
	if partner.Verify(header("X-Partner-Signature", schemes["github"].sign("", "{}")), []byte("{}"), noon) == nil {
		t.Error("without a secret in the environment a signature passes")
	}
	m, err = bySource([]byte(`{"specversion":"1.0","id":"1","source":"shop","type":"orders"}`))
	if err != nil || m.ID != "shop 1" {
		t.Errorf("%q, %v", m.ID, err)
	}
}

func TestDocs_Count(t *testing.T) {
	t.Parallel()
	url := serve(t, newLedger(t).once(book), free(), consumer.ReceiverConfig{Report: count})
	for _, body := range []string{`{"id": "e-1"}`, `{"id": "e-1"}`, `{"id": "e-2"}`, `{}`} {
		deliver(t, url, http.Header{}, body)
	}
	for outcome, want := range map[string]string{"handled": "2", "repeated": "1", "refused": "1"} {
		if got := deliveries.Get(outcome); got == nil || got.String() != want {
			t.Errorf("%s: %v, want %s", outcome, got, want)
		}
	}
	if spent := deliveries.Get("seconds").(*expvar.Float).Value(); spent <= 0 {
		t.Errorf("%v seconds", spent)
	}
}

func TestDocs_Either(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		`{"event_id":"order-1-placed","total":12.50}`,
		`{"specversion":"1.0","id":"order-1-placed","source":"shop","type":"orders","data":{"event_id":"order-1-placed","total":12.50}}`,
	} {
		m, err := either([]byte(payload))
		if err != nil || m.ID != "order-1-placed" || string(m.Data) != `{"event_id":"order-1-placed","total":12.50}` {
			t.Errorf("%s, %s, %v", m.ID, m.Data, err)
		}
	}
	if _, err := either([]byte(`{"total":12.50}`)); err == nil {
		t.Error("an event without an id is taken")
	}
}
