package main

import (
	"context"
	"errors"
	"time"

	"github.com/outbox-relay/outbox-relay/examples/internal/drill"
	"github.com/outbox-relay/outbox-relay/examples/support/app"
)

// limitedThenLost is an answer that waits for its time and meets a target which
// is busy twice and then loses its own answer.
func (r *rig) limitedThenLost() {
	const id, text = "thanks", "Thank you for your patience, the parcel is on its way."
	r.Scene("the target says 429 twice, then takes the reply and loses its answer")
	r.target.meet(id, limit(45), limit(90), lost)
	r.answer(id, text)
	r.awaitInQueue(id)
	r.notBefore(app.Grace, "an answer")
	r.awaitRequests(id, 1)
	r.awaitBack()
	r.notBefore(45*time.Second, "after 429 with Retry-After: 45, the instruction")
	r.awaitRequests(id, 2)
	r.awaitBack()
	r.tidy()
	r.notBefore(90*time.Second, "after 429 with Retry-After: 90, the instruction")
	r.awaitRequests(id, 3)
	r.awaitBack()
	r.Prove("the reply is at the target, and the desk does not know it",
		drill.Is("replies at the target", r.target.seen(id).replies, 1),
		drill.Is("state at the desk", r.Text(`select state from replies where id = $1`, id), "open"),
		drill.Is("claims", int(r.Claims(app.Name, "reply-"+id)), 0), r.readable(id))
	r.notBefore(120*time.Second, "after a lost answer, the instruction")
	r.awaitSent(id)
	got := r.target.seen(id)
	r.Prove("four attempts make one reply, with one key", drill.Is("replies", got.replies, 1), drill.Is("keys", got.keys, 1),
		drill.Is("attempts", got.attempts, "1 2 3 4"), drill.Is("text is the agent's", got.text == text && got.texts == 1, true))
	r.Prove("the count of attempts outlives the transactions that rolled back",
		drill.Is("answers", r.Text(`select string_agg(coalesce(answer::text, 'none'), ' ' order by id) from attempts where reply_id = $1`, id), "429 429 none 200"))
	r.replayed(id)
	r.withdrawn()
}

// replayed is an instruction that somebody publishes once more, long after its
// text was removed.
func (r *rig) replayed(id string) {
	r.awaitLooks()
	r.Prove("the text goes when it is of no use any more, and not before", drill.Is("texts removed", r.tidy(), 1))
	requests := r.target.seen(id).requests
	r.Publish(app.Replies, "nightly-replay", map[string]any{
		"event_id": "reply-" + id, "target": r.targetURL + "/" + id, "text": map[string]string{"reply": id},
	})
	r.Await(func(context.Context) error {
		if r.repeated.Load() != 1 {
			return errors.New("the replay was not delivered")
		}
		return nil
	})
	r.Prove("a replay of the instruction asks nobody anything", drill.Is("requests more", r.target.seen(id).requests-requests, 0))
}

// withdrawn is an answer that its agent takes back within the five minutes: the
// queue has the instruction already.
func (r *rig) withdrawn() {
	const id = "hasty"
	r.Scene("an agent takes an answer back, while the queue has the instruction")
	r.answer(id, "Have you tried switching it off and on again?")
	r.sent-- // it is not to arrive
	r.awaitInQueue(id)
	r.Must(r.desk.Withdraw(r.Context(), id))
	r.Pass(app.Grace)
	r.AwaitCount(1, `select count(*) from outbox.claims where event_id = $1`, "reply-"+id)
	err := r.desk.Withdraw(r.Context(), "thanks")
	r.Prove("what was withdrawn is not sent, and what was sent is not withdrawn",
		drill.Is("requests", r.target.seen(id).requests, 0), drill.Is("too late for thanks", errors.Is(err, app.ErrTooLate), true))
}
