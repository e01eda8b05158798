package metrics

import (
	"time"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/relay"
)

var moving = section{title: "Is it moving"}

var (
	famState = moving.gauge("state",
		"What the relay is doing: 1 for one of the states, 0 for the others.",
		"`active` and `standby` are as it should be. `holding` waits for a person, `careful` sends one request at a time after crashes.", "state")
	famLeader = moving.gauge("leader",
		"1 if this relay moves messages, 0 if it waits for another one or cannot.",
		"Over all relays of one slot the sum should be 1.")
	famReady = moving.gauge("ready",
		"1 if messages get through, or would if there were some: the answer of /readyz.",
		"`curl http://127.0.0.1:9464/readyz` names the reasons.")
	famLive = moving.gauge("live",
		"1 if no loop of the process is stuck: the answer of /livez.", "Restart the process; keep its log.")
	famMode = moving.gauge("mode",
		"Where messages are read, the WAL or the table: 1 for one of them.", "", "mode")
	famEpoch = moving.gauge("epoch",
		"The number of the session among those of all relays; 0 without a session.", "Each take-over raises it.")
	famSessions = moving.counter("sessions_total",
		"How often this relay took the stream.",
		"Several in an hour are a connection that breaks, or two relays that take turns.")
	famReceived = moving.counter("messages_received_total",
		"Messages that the source has shown, with those that had an outcome before.", "")
	famDispatched = moving.counter("dispatched_total",
		"Messages that the queue accepted, and of which that is recorded.", "", "queue")
	famLastOutcome = moving.gauge("last_outcome_timestamp_seconds",
		"When an outcome became durable last; 0 if none has.", "An idle outbox has none.")
	famLatency = moving.histogram("latency_seconds",
		"Time from the commit of a message until the queue accepted it, for messages that went out of memory (live) and for those that had waited in the table (deferred, and from created_at).",
		"The clocks of the server and of the relay's machine have to agree.", "path")
	famHeard = moving.gauge("stream_last_word_timestamp_seconds",
		"When the server last confirmed that the stream is ours; 0 before the first time.",
		"Nothing is sent while it is older than `RELAY_TRUST_WINDOW`.")
	famTransactions = moving.counter("stream_transactions_total",
		"Transactions that were read from the stream.", "")
	famStreamBytes = moving.counter("stream_bytes_total",
		"Bytes of the text of the messages that were read from the stream.", "")
	famIgnored = moving.counter("stream_ignored_total",
		"Changes in the stream that are no messages: updates and deletes, which the publication should not have.", "`outbox-relay doctor`.")
	famNotices = moving.counter("stream_notices_total",
		"Notices that the server put into the stream.",
		"Read them in the log (`notice of the server`): since Postgres 18 a missing publication is one notice, and then silence.")
	famSessionEnds = moving.counter("stream_session_ends_total",
		"How sessions of the stream ended.",
		"`closed`: the relay ended it itself. `terminated`: somebody ended the server's process, or the slot was lost. `slot_taken`: another session has the slot. `silence`, `connection`: the network, or a server that hangs. `server_stopping`: it restarts. `unreadable`: the log says what.", "reason")
	famSlotLosses = moving.counter("slot_losses_total",
		"How often this relay found the slot gone (missing), or given up by the server, by the server's reason.",
		"With `RELAY_SLOT_LOST=recreate` the relay has made a new one and takes from the table what the old one would have shown. Find out why.", "reason")
	famStatuses = moving.counter("stream_statuses_total",
		"Standby statuses that were sent to the server.", "")
	famSourceTrouble = moving.gauge("source_trouble",
		"1 while something keeps messages from being read, or will: publication, table, slot or connection.",
		"/readyz and the log say what. Messages are in the table and will be found.")
	famLoopTrouble = moving.gauge("loop_trouble",
		"1 while a loop of the relay cannot do its work because of Postgres.", "/readyz says why.", "loop")
	famConnectionTrouble = moving.gauge("connection_trouble",
		"1 while statements on one of the relay's connections fail.", "/readyz says why.", "connection")
)

var (
	phases = []string{
		string(relay.Starting), string(relay.Standby), string(relay.Active), string(relay.Careful),
		string(relay.Holding), string(relay.Reconnecting), string(relay.Stopping),
	}
	modes       = []string{"wal", "poll"}
	loops       = []string{"intake", "writer", "clock", "loader", "settings", "sweep", "retention"}
	connections = []string{"writing", "reading", "loading", "sweeping"}
)

// moving exports whether messages move.
func (m *Metrics) moving(to sink, s *relay.State, c *relay.Counts) {
	to.states(famState, string(s.Phase), phases)
	to.flag(famLeader, s.Phase == relay.Active || s.Phase == relay.Careful)
	to.flag(famReady, m.ready(s))
	to.flag(famLive, m.live(s))
	mode := modes[0]
	if s.Polls {
		mode = modes[1]
	}
	to.states(famMode, mode, modes)
	to.put(famEpoch, float64(s.Epoch))
	to.count(famSessions, s.Sessions)
	to.count(famReceived, c.Received)
	for i := range c.Queues {
		to.count(famDispatched, c.Queues[i].Dispatched, label(c.Queues[i].Name))
	}
	to.put(famLastOutcome, unix(s.Totals.LastOutcome))
	to.distribute(famLatency, c.Live, "live")
	to.distribute(famLatency, c.Deferred, "deferred")
	to.put(famHeard, unix(s.Source.LastWord))
	to.flag(famSourceTrouble, s.Source.Trouble != nil)
	troubled(to, famLoopTrouble, s.Loops, loops)
	troubled(to, famConnectionTrouble, s.Database, connections)
}

// stream exports what the source has counted; a source that polls counts nothing.
func stream(to sink, s cdc.Stats) {
	to.count(famTransactions, s.Transactions)
	to.count(famStreamBytes, s.Bytes)
	to.count(famIgnored, s.Ignored)
	to.count(famNotices, s.Notices)
	to.count(famStatuses, s.Statuses)
	for _, reason := range cdc.Ends {
		to.count(famSessionEnds, s.Ends[reason], reason)
	}
	for _, reason := range cdc.Losses {
		to.count(famSlotLosses, s.Losses[reason], reason)
	}
}

// troubled exports which of the loops or connections are in trouble.
func troubled(to sink, f *family, states []relay.LoopState, all []string) {
	trouble := map[string]bool{}
	for i := range states {
		trouble[states[i].Name] = states[i].Trouble != nil
	}
	for _, name := range all {
		to.flag(f, trouble[name], name)
	}
}

// unix is a moment in seconds; 0 without one.
func unix(at *time.Time) float64 {
	if at == nil {
		return 0
	}
	return float64(at.UnixNano()) / 1e9
}

// age is how long ago something was; 0 if there is nothing.
func age(now time.Time, at *time.Time) float64 {
	if at == nil {
		return 0
	}
	return max(0, now.Sub(*at).Seconds())
}
