package metrics

import "github.com/outbox-relay/outbox-relay/relay"

var memory = section{title: "In memory"}

var (
	famWindow = memory.gauge("window_messages",
		"Messages that were read and have no durable outcome.", "At the limit reading stops, until outcomes are written.")
	famWindowLimit = memory.gauge("window_messages_limit",
		"The most messages that may be in the window: RELAY_WINDOW_MESSAGES.", "")
	famWindowBytes = memory.gauge("window_bytes",
		"Bytes of the text of the messages that have no durable outcome.", "")
	famWindowBytesLimit = memory.gauge("window_bytes_limit",
		"The most bytes that may be in the window: RELAY_WINDOW_BYTES.", "")
	famWindowAge = memory.gauge("window_oldest_age_seconds",
		"How long ago the oldest message was read that has no durable outcome; 0 without one.",
		"More than some seconds: neither sent nor deferred, so outcomes cannot be written.")
	famCached = memory.gauge("cached_messages",
		"Deferred messages that are in memory, on their way out.", "")
	famPending = memory.gauge("outcomes_pending",
		"Outcomes that wait to be written.", "")
	famInFlight = memory.gauge("requests_in_flight",
		"Requests to the queue service that are under way.", "")
	famInFlightLimit = memory.gauge("requests_in_flight_limit",
		"The most requests that may be: RELAY_MAX_IN_FLIGHT.", "")
	famOldestRequest = memory.gauge("oldest_request_age_seconds",
		"How long the oldest request has been under way; 0 without one.", "")
)

// inMemory exports what is in memory.
func inMemory(to sink, s *relay.State) {
	r := &s.Router
	to.put(famWindow, float64(r.Messages))
	to.put(famWindowLimit, float64(r.MessagesLimit))
	to.put(famWindowBytes, float64(r.Bytes))
	to.put(famWindowBytesLimit, float64(r.BytesLimit))
	to.put(famWindowAge, age(s.At, r.Oldest))
	to.put(famCached, float64(r.Cached))
	to.put(famPending, float64(s.Writer.Pending))
	to.put(famInFlight, float64(r.InFlight))
	to.put(famInFlightLimit, float64(r.InFlightLimit))
	to.put(famOldestRequest, age(s.At, r.OldestRequest))
}
