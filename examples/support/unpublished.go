package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/outbox-relay/outbox-relay/examples/internal/drill"
	"github.com/outbox-relay/outbox-relay/examples/support/app"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// queueRefuses is an answer that the relay cannot get into the queue, while others
// get through: the relay's own dead letter.
func (r *rig) queueRefuses() {
	const id, text, key = "invoice", "The invoice is attached.", "reply-invoice"
	r.Scene("the queue fails for one instruction, until the relay's attempts are used up")
	mended := r.Fault(emulator.Fault{Route: "queue.publish", Key: key, Status: http.StatusInternalServerError})
	r.answer(id, text)
	r.untilDead(key)
	r.tidy()
	r.Say("outbox-relay dead-letters list:")
	r.tell(r.CLI("dead-letters", "list"))
	message := r.Text(`select message_id::text from outbox.dead_letters`)
	r.Say("outbox-relay dead-letters show %s:", message)
	r.tell(r.CLI("dead-letters", "show", message))
	r.Prove("the dead letter says why, and its text can be read",
		drill.Is("reason", r.Text(`select reason from outbox.dead_letters`), "attempts_exhausted"),
		drill.Is("status", r.count(`select last_status from outbox.dead_letters`), http.StatusInternalServerError), r.readable(id))

	mended()
	r.Say("the queue is mended; outbox-relay dead-letters redrive %s:", message)
	r.tell(r.CLI("dead-letters", "redrive", message))
	r.awaitInQueue(id)
	r.Pass(app.Grace)
	r.awaitSent(id)
	r.AwaitCount(1, `select count(*) from outbox.dispatched where message_id = $1::bigint`, message)
	got := r.target.seen(id)
	requests, bodies := r.published(key)
	r.Prove("redriven, it is the same message: same key, same bytes, one reply", drill.Is("different bodies", bodies, 1),
		drill.Is("requests to the queue", requests, r.count(`select attempts from outbox.dispatched where message_id = $1::bigint`, message)),
		drill.Is("replies", got.replies, 1), drill.Is("keys", got.keys, 1), drill.Is("text is the agent's", got.text == text, true))
}

// untilDead lets others get through until a message is a dead letter: an attempt
// counts only if somebody got through since the last one, so that an outage burns
// nobody's.
func (r *rig) untilDead(key string) {
	r.Helper()
	dead := func() bool { return r.count(`select count(*) from outbox.dead_letters`) == 1 }
	for n := 1; !dead(); n++ {
		other := fmt.Sprintf("other-%d", n)
		r.answer(other, "Good morning.")
		r.awaitInQueue(other)
		before, _ := r.published(key)
		r.Await(func(context.Context) error {
			if now, _ := r.published(key); now == before && !dead() {
				return errors.New("no further attempt")
			}
			return nil
		})
	}
}

// published is how often a key was sent to the queue, and with how many different
// bodies.
func (r *rig) published(key string) (requests, bodies int) {
	different := map[string]bool{}
	for _, e := range r.Queue.Journal().Entries(0, 0) {
		if e.Route == "queue.publish" && e.Key == key {
			requests++
			different[e.BodySHA256] = true
		}
	}
	return requests, len(different)
}
