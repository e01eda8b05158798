package metrics

import "github.com/outbox-relay/outbox-relay/relay"

var outcomes = section{title: "What becomes of messages"}

var (
	famDeferred = outcomes.counter("deferred_total",
		"Messages that were put into the table to go out later, by reason.",
		"`held` waits behind others, `scheduled` for its time; the others are classes of failures.", "reason")
	famDeadLetters = outcomes.counter("dead_letters_total",
		"Messages that became dead letters since the start, by reason.",
		"`outbox-relay dead-letters list`, then redrive or discard.", "reason")
	famWithdrawn = outcomes.counter("withdrawn_total",
		"Deferred messages that the application deleted.", "")
	famRecovered = outcomes.counter("recovered_total",
		"Messages that the stream did not show and the sweep found in the table.",
		"They go out, but something hides rows from the WAL: `outbox-relay doctor`.")
	famDuplicates = outcomes.counter("possible_duplicates_total",
		"Messages that went out again after the queue may have forgotten their key.",
		"`select * from outbox.dispatched where possible_duplicate`; consumers that claim have dropped them.")
	famBatch = outcomes.histogram("outcome_batch_messages",
		"Outcomes that were written in one transaction.", "")
	famWrite = outcomes.histogram("outcome_write_duration_seconds",
		"How long the transaction took that wrote a batch of outcomes.", "Publishing does not wait for it, unless it fails.")
	famWriteFailures = outcomes.counter("outcome_write_failures_total",
		"Attempts to write outcomes that failed.", "Nothing new is sent until it works; what was accepted is marked then.")
	famRemoved = outcomes.counter("retention_removed_total",
		"Rows that retention has removed.", "", "what")
	famRetained = outcomes.gauge("retention_last_success_timestamp_seconds",
		"When a round of retention went through last; 0 if none has, as on a standby.",
		"A round comes every minute. The log says what is in its way; most often a right.")
)

// became exports what became of messages.
func became(to sink, s *relay.State, c *relay.Counts) {
	for reason, n := range c.Deferrals {
		to.count(famDeferred, n, reason)
	}
	for reason, n := range c.DeadLetters {
		to.count(famDeadLetters, n, reason)
	}
	to.count(famWithdrawn, s.Totals.Withdrawn)
	to.count(famRecovered, s.Totals.Recovered)
	to.count(famDuplicates, c.PossibleDuplicates)
	to.distribute(famBatch, c.Batches)
	to.distribute(famWrite, c.Writes)
	to.count(famWriteFailures, c.FailedWrites)
	to.count(famRemoved, c.Removed.Messages, "messages")
	to.count(famRemoved, c.Removed.Claims, "claims")
	to.count(famRemoved, c.Removed.DeadLetters, "dead_letters")
	to.count(famRemoved, c.Removed.Withdrawn, "withdrawn")
	to.put(famRetained, unix(c.Retained))
}
