package main

import (
	"net/http"

	"github.com/outbox-relay/outbox-relay/examples/internal/drill"
	"github.com/outbox-relay/outbox-relay/examples/support/app"
)

// refusedForGood is an answer that the target will never take.
func (r *rig) refusedForGood() {
	const id = "insult"
	r.Scene("the target refuses a reply for good")
	r.target.meet(id, refuse(http.StatusUnprocessableEntity))
	r.answer(id, "That is not my problem.")
	r.sent-- // it is not to arrive
	r.awaitInQueue(id)
	r.Pass(app.Grace)
	r.AwaitAccepted(app.Failures, 1)
	r.AwaitCount(1, `select count(*) from failed_replies`) // the queue may have the message before its commit is visible here
	r.awaitLooks()
	r.Prove("one request, one failure on record, and one message to the agents, in one transaction",
		drill.Is("requests", r.target.seen(id).requests, 1), drill.Is("replies", r.target.seen(id).replies, 0),
		drill.Is("state", r.Text(`select state from replies where id = $1`, id), "failed"),
		drill.Is("failures on record", r.count(`select count(*) from failed_replies where reply_id = $1 and status = 422`, id), 1),
		drill.Is("key of the message", r.Queue.Accepted(app.Failures)[0].Key, "reply-insult-failed"),
		drill.Is("transactions", r.count(`select count(distinct xmin::text) from (
			select xmin from failed_replies where reply_id = $1
			union all select xmin from replies where id = $1
			union all select xmin from outbox.messages where key = 'reply-' || $1 || '-failed'
			union all select xmin from outbox.claims where event_id = 'reply-' || $1) x`, id), 1))
	r.tidy()
	r.Prove("the agent can read what was refused", r.readable(id))
}
