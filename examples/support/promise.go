package main

import (
	"errors"
	"time"

	"github.com/outbox-relay/outbox-relay/examples/internal/drill"
	"github.com/outbox-relay/outbox-relay/examples/support/app"
	"github.com/outbox-relay/outbox-relay/outbox"
)

// thirtyDays are two answers that are promised for a day in a month. The relay
// keeps them by the clock of Postgres, which nobody can move: the drill shows
// that they wait, through the death of a relay, and then ends the wait as an
// operator does. That a time which comes by itself is noticed within a second is
// for the relay's own tests.
func (r *rig) thirtyDays() {
	const kept, taken, text = "promise", "rash-promise", "It is a month now: has it worked since?"
	const month = 30 * 24 * time.Hour
	r.Scene("two answers are promised for in thirty days")
	err := outbox.Message{Key: "reply-x", Queue: app.Replies, Payload: map[string]string{}, Delay: month}.Validate()
	limit, ok := errors.AsType[*outbox.LimitError](err)
	if !ok {
		r.Fatalf("%v, want a limit", err)
	}
	r.Say("%s", limit)
	r.Prove("a delay of thirty days is refused: no queue waits so long", drill.Is("field", limit.Field, "delay_seconds"))

	day := time.Now().Add(month)
	r.answerAt(kept, text, day)
	r.answerAt(taken, text, day)
	r.sent-- // that one is not to arrive
	waiting := `select count(*) from outbox.deferred d join outbox.messages m on m.id = d.message_id
		where d.reason = 'scheduled' and d.not_before = m.deliver_at and m.deliver_at > now() + interval '29 days'`
	r.AwaitCount(2, waiting)
	r.Must(r.Relay.Kill())
	r.Say("the relay is killed")
	r.StartRelay()
	r.tidy()
	r.Prove("they wait in the table, through the death of the relay", drill.Is("waiting", r.count(waiting), 2), r.readable(kept),
		drill.Is("requests to the queue", r.requests(kept)+r.requests(taken), 0))

	r.Must(r.desk.Withdraw(r.Context(), taken))
	r.Say("an agent withdraws %s", taken)
	r.Say("nobody waits a month here: outbox-relay deferred release --queue replies --yes")
	r.tell(r.CLI("deferred", "release", "--queue", "replies", "--yes"))
	r.awaitSent(kept)
	r.AwaitCount(0, `select count(*) from outbox.deferred`)
	got := r.target.seen(kept)
	r.Prove("the promise is kept, once, and the one that was withdrawn never left the database", drill.Is("replies", got.replies, 1),
		drill.Is("text is the agent's", got.text == text, true), drill.Is("requests to the queue for the other", r.requests(taken), 0))
}

func (r *rig) requests(id string) int {
	n, _ := r.published("reply-" + id)
	return n
}
