// Command support plays a support desk whose target limits it, loses answers,
// refuses and is down, whose queue refuses, and whose relay is killed, and proves
// what holds all the same. Package app is what an application takes from it.
package main

import (
	"github.com/outbox-relay/outbox-relay/examples/internal/drill"
	"github.com/outbox-relay/outbox-relay/examples/support/app"
)

const deadLetters = "replies-dlq"

var support = drill.Drill{
	Name:      "support",
	Invariant: "one reply for each answer, with one key in every attempt, and none is lost",
	Tables:    app.Tables,
	Queues: []drill.Queue{
		{Name: app.Replies, DeadLetters: deadLetters, MaxRetries: 5},
		{Name: app.Failures},
	},
	Relay: map[string]string{ // these times are the relay's own, and the queue's clock does not move them
		"RELAY_RETRY_MIN": "10ms", "RELAY_RETRY_MAX": "50ms", "RELAY_DEFER_AFTER": "200ms",
		"RELAY_DEFER_MIN": "50ms", "RELAY_DEFER_MAX": "200ms", "RELAY_MAX_ATTEMPTS": "3",
	},
	Play: play,
}

func main() { drill.Main(support) }
