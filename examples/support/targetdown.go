package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/examples/internal/drill"
	"github.com/outbox-relay/outbox-relay/examples/support/app"
)

// targetDown is an answer whose attempts are used up while the target is down.
func (r *rig) targetDown() {
	const id, text = "refund", "Your money is on its way back."
	const tries = 6 // MaxRetries and the first
	r.Scene("the target is down for longer than the instruction is tried")
	r.target.meet(id, times(tries, refuse(http.StatusServiceUnavailable))...)
	r.answer(id, text)
	r.awaitInQueue(id)
	r.Pass(app.Grace)
	for try := 1; try <= tries; try++ {
		r.awaitRequests(id, try)
		r.awaitBack()
		r.tidy()
		r.Pass(time.Hour) // the longest pause after a failure
	}
	r.awaitDeadLetter()
	r.Pass(72 * time.Hour)
	r.tidy()
	r.Say("outbox-relay infrai stats %s:", app.Replies)
	r.tell(r.CLI("infrai", "stats", app.Replies))
	var letters struct {
		Data struct {
			Items []struct {
				Payload struct {
					EventID string `json:"event_id"`
				}
			}
		}
	}
	r.Must(json.Unmarshal(r.queueCall(http.MethodGet, "dlq/list/"+app.Replies), &letters))
	r.Prove("three days later the dead letter names its key and its attempts, and its text can be read",
		drill.Is("dead letters", len(letters.Data.Items), 1), drill.Is("key", letters.Data.Items[0].Payload.EventID, "reply-refund"),
		drill.Is("attempts", r.count(`select count(*) from attempts where reply_id = $1 and answer = 503`, id), tries), r.readable(id))

	r.Say("the target is mended, and the dead letter redriven")
	r.queueCall(http.MethodPost, "dlq/redrive/"+app.Replies)
	r.awaitSent(id)
	got := r.target.seen(id)
	r.Prove("redriven, it is the same instruction: one reply, with the key of the first attempt", drill.Is("replies", got.replies, 1),
		drill.Is("keys", got.keys, 1), drill.Is("attempts", got.attempts, "1 2 3 4 5 6 7"), drill.Is("text is the agent's", got.text == text && got.texts == 1, true),
		drill.Is("messages", r.count(`select count(*) from outbox.messages where key like 'reply-refund%'`), 1))
}

// awaitDeadLetter waits until the queue has given an instruction up.
func (r *rig) awaitDeadLetter() {
	r.Helper()
	r.Await(func(context.Context) error {
		if n := r.Queue.Counters().DeadLettered; n != 1 {
			return fmt.Errorf("%d dead letters, want 1", n)
		}
		return nil
	})
}

// queueCall makes a call of the queue that is for people: curl does the same.
func (r *rig) queueCall(method, path string) (answer []byte) {
	r.Helper()
	r.Say("curl -X %s -H 'Authorization: Bearer ...' $INFRAI_BASE_URL/v1/queue/%s", method, path)
	request, err := http.NewRequestWithContext(r.Context(), method, r.QueueURL+"/v1/queue/"+path, http.NoBody)
	r.Must(err)
	request.Header.Set("Authorization", "Bearer drill")
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	r.Must(err)
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	r.Must(err)
	if response.StatusCode != http.StatusOK {
		r.Fatalf("%s %s: %s: %s", method, path, response.Status, answer)
	}
	return answer
}

// tell prints what a command has printed.
func (r *rig) tell(output string) {
	for line := range strings.Lines(output) {
		r.Say("  %s", strings.TrimRight(line, "\n"))
	}
}
