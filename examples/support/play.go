package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-relay/outbox-relay/examples/internal/drill"
	"github.com/outbox-relay/outbox-relay/examples/support/app"
	"github.com/outbox-relay/outbox-relay/outbox/consumer"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

func play(s *drill.Stage) {
	r := open(s)
	r.limitedThenLost()
	r.refusedForGood()
	r.targetDown()
	r.queueRefuses()
	r.thirtyDays()
	r.tooLarge()
	r.whole()
}

// rig is the support desk at work, and its target.
type rig struct {
	*drill.Stage
	desk      *app.Desk
	target    *target
	targetURL string
	sent      int          // replies that are to arrive
	nacks     int          // instructions that the desk has given back so far
	repeated  atomic.Int64 // deliveries that were repeats
}

func open(s *drill.Stage) *rig {
	config, err := pgxpool.ParseConfig(s.URL)
	s.Must(err)
	config.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(s.Context(), config)
	s.Must(err)
	s.Cleanup(pool.Close)
	r := &rig{Stage: s, target: newTarget()}
	r.targetURL = s.Serve(r.target)
	r.desk = &app.Desk{
		DB:    pool,
		Queue: consumer.Queue{BaseURL: s.QueueURL, Name: app.Replies, APIKey: func() string { return "drill" }},
		Loop: consumer.LoopConfig{
			PollInterval: 20 * time.Millisecond, MaxPause: 50 * time.Millisecond,
			Lease: 10 * time.Hour, HandlerTimeout: time.Minute, // the clock is moved during the work
			Report: r.report,
		},
	}
	s.Go("desk", r.desk.Work)
	return r
}

func (r *rig) report(d consumer.Report) {
	if d.Outcome == consumer.Repeated {
		r.repeated.Add(1)
	}
}

// answer writes a reply to a ticket of the same name.
func (r *rig) answer(id, text string) { r.answerAt(id, text, time.Time{}) }

func (r *rig) answerAt(id, text string, at time.Time) {
	r.Helper()
	r.Must(r.desk.Answer(r.Context(), app.Reply{ID: id, Target: r.targetURL + "/" + id, Text: text, At: at}))
	r.sent++
	r.Say("an agent answers: %s", id)
}

// count is a query of the drill's own.
func (r *rig) count(sql string, args ...any) int { return int(r.Count(sql, args...)) }

// awaitInQueue waits until the queue has taken the instruction for a reply.
func (r *rig) awaitInQueue(id string) {
	r.Helper()
	r.Await(func(context.Context) error {
		if !slices.ContainsFunc(r.Queue.Accepted(app.Replies), func(m emulator.Message) bool { return m.Key == "reply-"+id }) {
			return fmt.Errorf("the instruction for %s is not in the queue", id)
		}
		return nil
	})
}

// awaitRequests waits until the target has met so many requests for a ticket.
func (r *rig) awaitRequests(ticket string, n int) {
	r.Helper()
	r.Await(func(context.Context) error {
		if got := r.target.seen(ticket).requests; got != n {
			return fmt.Errorf("%d requests for %s, want %d", got, ticket, n)
		}
		return nil
	})
}

// awaitBack waits until the desk has given one more instruction back.
func (r *rig) awaitBack() {
	r.Helper()
	r.nacks++
	r.AwaitAnswers("queue.nack", app.Replies, emulator.Done, r.nacks)
}

// awaitSent waits until a reply is recorded as sent.
func (r *rig) awaitSent(id string) {
	r.Helper()
	r.AwaitCount(1, `select count(*) from replies where id = $1 and state = 'sent'`, id)
}

// notBefore lets time pass until a second before something is due, proves that
// nothing was delivered, and then lets it become due.
func (r *rig) notBefore(due time.Duration, what string) {
	r.Helper()
	before := r.Queue.Counters().Consumed
	r.Pass(due - time.Second)
	r.awaitLooks()
	r.Prove(fmt.Sprintf("%s is not delivered before %s", what, due), drill.Is("deliveries", r.Queue.Counters().Consumed-before, 0))
	r.Pass(time.Second)
}

// awaitLooks waits until the desk has looked into the queue from now on: the
// second answer from here is to a request that began after the first.
func (r *rig) awaitLooks() {
	r.Helper()
	looks := func() int { return r.Answers("queue.consume", app.Replies, emulator.Done) }
	begin := looks()
	r.Await(func(context.Context) error {
		if n := looks() - begin; n < 2 {
			return fmt.Errorf("%d looks into the queue, want 2", n)
		}
		return nil
	})
}

// tidy removes the texts that are of no use any more, as early as can be.
func (r *rig) tidy() int {
	r.Helper()
	n, err := r.desk.Tidy(r.Context(), 0)
	r.Must(err)
	return int(n)
}

// readable says whether the text of a reply is there.
func (r *rig) readable(id string) drill.Fact {
	r.Helper()
	return drill.Is("text is there", r.count(`select count(body) from replies where id = $1`, id), 1)
}
