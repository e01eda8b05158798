package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/examples/internal/drill"
	"github.com/outbox-relay/outbox-relay/examples/payments/app"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

var payments = drill.Drill{
	Name:      "payments",
	Invariant: "each payment has one change of its invoice, one booking, and one claim on either side",
	Tables:    app.Tables,
	Queues:    []drill.Queue{{Name: app.Bookings + "-dead"}, {Name: app.Bookings, FIFO: true, DeadLetters: app.Bookings + "-dead", MaxRetries: 5}},
	// Retries come at once, because the queue's clock stands still meanwhile.
	Relay: map[string]string{
		"RELAY_RETRY_MIN": "10ms", "RELAY_RETRY_MAX": "50ms", "RELAY_DEFER_AFTER": "200ms", "RELAY_DEFER_MIN": "20ms",
		"RELAY_DEFER_MAX": "50ms", "RELAY_PROBE_MIN": "20ms", "RELAY_PROBE_MAX": "50ms",
	},
	Play:  play,
	Roles: map[string]drill.Role{"application": app.Run},
}

func play(s *drill.Stage) {
	// Infrai remembers a key for a day. A FIFO queue by itself does so for five
	// minutes, and that is the weaker promise to stand on.
	settings := s.Queue.Settings()
	settings.PlatformIdempotency = "off"
	s.Must(s.Queue.SetSettings(settings))

	webhooks, err := app.Webhooks(s.DB, consumer.Fixed(secret), consumer.ReceiverConfig{Now: s.Now})
	s.Must(err)
	sender := &stripe{stage: s, url: s.Serve(webhooks)}

	forged(s, sender)
	repeated(s, sender)
	raced(s, sender)
	outOfOrder(s, sender)
	nightly(s, sender)
	restarted(s, sender)
}

// forged shows that nothing happens without a signature.
func forged(s *drill.Stage, sender *stripe) {
	s.Scene("deliveries that Stripe has not signed, or not for this")
	s.Exec(`insert into invoices values ('in_1', 4200)`)
	event := []byte(`{"id":"evt_0","type":"invoice.paid","data":{"object":{"id":"in_1"}}}`)
	other := []byte(`{"id":"evt_0","type":"invoice.paid","data":{"object":{"id":"in_2"}}}`)
	s.Prove("what is forged is refused and claims nothing",
		drill.Is("unsigned", sender.send(nil, event), http.StatusUnauthorized),
		drill.Is("with another secret", sender.send(sign("guess", s.Now(), event), event), http.StatusUnauthorized),
		drill.Is("another body", sender.send(sign(secret, s.Now(), other), event), http.StatusUnauthorized),
		drill.Is("301 s old", sender.send(sign(secret, s.Now().Add(-301*time.Second), event), event), http.StatusUnauthorized),
		drill.Is("signed, but no JSON", sender.deliver([]byte(`paid!`)), http.StatusBadRequest),
		drill.Is("claims", s.Claims(app.InvoicesConsumer, ""), 0),
		drill.Is("messages", s.Count(`select count(*) from outbox.messages`), 0),
		drill.Is("changes", changes(s, "in_1"), 0))
}

// repeated is one event at three times, around the five minutes for which a FIFO
// queue knows a key and for which Stripe's signature counts.
func repeated(s *drill.Stage, sender *stripe) {
	s.Scene("one event at T+0, T+299 s and T+301 s, while the queue takes messages and loses its answers")
	found := s.Fault(emulator.Fault{Route: "queue.publish", Store: true, Cut: emulator.CutClose})
	began := s.Now()
	event := sender.event("evt_1", "invoice.paid", "in_1")
	signature := sign(secret, began, event)
	first := sender.send(signature, event)
	awaitPublish(s, emulator.Accepted, began)

	s.Pass(299 * time.Second)
	second := sender.send(signature, event) // the very same request
	awaitPublish(s, emulator.Deduplicated, began.Add(299*time.Second))
	s.Say("the relay has published again: the queue knows the key")

	s.Pass(2 * time.Second)
	replayed := sender.send(signature, event)
	third := sender.deliver(event)
	awaitPublish(s, emulator.Accepted, began.Add(301*time.Second))
	s.Say("the relay has published again: the queue has forgotten the key")
	found()
	s.AwaitCount(1, `select count(*) from outbox.dispatched`)

	var reports drill.Reports
	stop := s.Go("the books", books(s, &reports))
	s.AwaitAnswers("queue.ack", app.Bookings, emulator.Done, 2)
	stop()
	s.Prove("a repeat is a success and changes nothing",
		drill.Is("T+0", first, http.StatusOK), drill.Is("T+299 s", second, http.StatusOK), drill.Is("T+301 s", third, http.StatusOK),
		drill.Is("the request of T+0 at T+301 s", replayed, http.StatusUnauthorized),
		drill.Is("changes", changes(s, "in_1"), 1),
		drill.Is("claims", s.Claims(app.InvoicesConsumer, "evt_1"), 1),
		drill.Is("messages", s.Count(`select count(*) from outbox.messages`), 1))
	s.Prove("what the queue takes twice is booked once",
		drill.Is("taken", s.Accepted(app.Bookings), 2),
		drill.Is("handled", reports.Count(consumer.Handled), 1), drill.Is("repeats", reports.Count(consumer.Repeated), 1),
		drill.Is("bookings", bookings(s, "in_1"), 1), drill.Is("claims", s.Claims(app.BooksConsumer, "evt_1"), 1))
}

// raced holds the first worker in the middle of its transaction, after the claim
// and before the booking, until its lease has ended and a second one has the
// message too.
func raced(s *drill.Stage, sender *stripe) {
	s.Scene("two workers race, after the lease of the first has ended")
	s.Exec(`insert into invoices values ('in_2', 1900)`)
	sender.deliver(sender.event("evt_2", "invoice.paid", "in_2"))
	s.AwaitAccepted(app.Bookings, 3)

	var slow, quick drill.Reports
	release := s.Hold("bookings")
	stopSlow := s.Go("the slow worker", books(s, &slow))
	s.AwaitWaiting(1)
	s.Say("the first worker has claimed, and stands still")
	s.Pass(time.Minute)
	stopQuick := s.Go("the quick worker", books(s, &quick))
	s.AwaitWaiting(2)
	s.Say("the second worker has the message too, and waits for the claim")
	release()
	s.AwaitReports(&slow, consumer.Handled, 1)
	s.AwaitReports(&quick, consumer.Repeated, 1)
	stopSlow()
	stopQuick()
	s.Prove("of two workers with one message, one books",
		drill.Is("bookings", bookings(s, "in_2"), 1), drill.Is("claims", s.Claims(app.BooksConsumer, "evt_2"), 1),
		drill.Is("left in the queue", s.Left(app.Bookings), 0))
}

// outOfOrder has an event before its invoice, and an older one after it.
func outOfOrder(s *drill.Stage, sender *stripe) {
	s.Scene("events before their invoice, and in the wrong order")
	failed := sender.event("evt_3", "invoice.payment_failed", "in_3")
	paid := sender.event("evt_4", "invoice.paid", "in_3")
	early := sender.deliver(paid)
	claims := s.Claims(app.InvoicesConsumer, "evt_4")
	s.Exec(`insert into invoices values ('in_3', 700)`)
	s.Prove("an event that comes too early stays free, and counts when it comes again",
		drill.Is("before the invoice", early, http.StatusServiceUnavailable), drill.Is("claims", claims, 0),
		drill.Is("after it", sender.deliver(paid), http.StatusOK), drill.Is("claims", s.Claims(app.InvoicesConsumer, "evt_4"), 1))
	s.Prove("an event that comes too late changes nothing",
		drill.Is("the failure before the payment", sender.deliver(failed), http.StatusOK),
		drill.Is("status", s.Text(`select status from invoices where id = 'in_3'`), "paid"), drill.Is("changes", changes(s, "in_3"), 1))
}

// nightly brings all events of the day once more, and one that never came.
func nightly(s *drill.Stage, sender *stripe) {
	s.Scene("the nightly run asks Stripe for all events of the day")
	s.Exec(`insert into invoices values ('in_4', 3300)`)
	sender.event("evt_5", "invoice.paid", "in_4") // its webhook got lost
	s.Pass(24 * time.Hour)
	news, err := app.Reconcile(s.Context(), s.DB, sender.events)
	s.Must(err)
	again, err := app.Reconcile(s.Context(), s.DB, sender.events)
	s.Must(err)
	stop := s.Go("the books", books(s, new(drill.Reports)))
	s.AwaitCount(4, `select count(*) from bookings`)
	stop()
	s.Prove("a replay makes good what was missed, and repeats nothing",
		drill.Is("events", len(sender.events), 5), drill.Is("news", news, 1), drill.Is("news at a second run", again, 0))
	proveAll(s, 4)
}

// restarted runs the whole program as it runs in production.
func restarted(s *drill.Stage, sender *stripe) {
	s.Scene("the whole program in a process of its own, and its stop")
	s.Exec(`insert into invoices values ('in_5', 100)`)
	program := s.Spawn("application", map[string]string{"LISTEN": "127.0.0.1:0", "STRIPE_WEBHOOK_SECRETS": "whsec_old," + secret})
	_, address, _ := strings.Cut(s.AwaitLine(program, "listening"), "address=")
	sender.url = "http://" + address
	// A process has the machine's clock.
	event := sender.event("evt_6", "invoice.paid", "in_5")
	status := sender.send(sign(secret, time.Now(), event), event)
	s.AwaitCount(5, `select count(*) from bookings`)
	s.Prove("the program works, and stops when it is asked to",
		drill.Is("delivery", status, http.StatusOK), drill.Is("exit code", s.Stop(program), 0))
	proveAll(s, 5)
}

// proveAll compares both sides over all payments.
func proveAll(s *drill.Stage, paid int64) {
	s.Helper()
	s.Prove("one change, one booking, one claim on either side for each payment",
		drill.Is("paid invoices", s.Count(`select count(*) from invoices where status = 'paid'`), paid),
		drill.Is("changes", s.Count(`select sum(changes) from invoices`), paid),
		drill.Is("bookings", s.Count(`select count(*) from bookings`), paid),
		drill.Is("invoices without exactly one booking of their amount", s.Count(`select count(*) from invoices i
			where (select array_agg(amount) from bookings b where b.invoice = i.id) is distinct from array[i.amount]`), 0),
		drill.Is("claims of the books", s.Claims(app.BooksConsumer, ""), paid),
		drill.Is("claims of the invoices, with the one failure", s.Claims(app.InvoicesConsumer, ""), paid+1))
}

// books is a worker of the application.
func books(s *drill.Stage, reports *drill.Reports) func(ctx context.Context) error {
	s.Helper()
	loop, err := app.Books(s.DB, s.ConsumerQueue(app.Bookings), consumer.LoopConfig{
		PollInterval: 20 * time.Millisecond, Report: reports.Report,
	})
	s.Must(err)
	return loop.Run
}

// awaitPublish waits for a publish of exactly this time with this outcome.
func awaitPublish(s *drill.Stage, outcome emulator.Outcome, at time.Time) {
	s.Helper()
	s.Await(func(context.Context) error {
		for _, e := range s.Queue.Journal().Entries(0, int(s.Queue.Journal().Last())) {
			if e.Route == "queue.publish" && e.Outcome == outcome && e.Time.Equal(at) {
				return nil
			}
		}
		return fmt.Errorf("a publish that is %s at %s", outcome, at)
	})
}

func changes(s *drill.Stage, invoice string) int64 {
	s.Helper()
	return s.Count(`select changes from invoices where id = $1`, invoice)
}

func bookings(s *drill.Stage, invoice string) int64 {
	s.Helper()
	return s.Count(`select count(*) from bookings where invoice = $1`, invoice)
}
