package metrics

import (
	"time"

	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/relay"
)

var database = section{title: "What Postgres knows"}

var (
	famAge = database.gauge("database_age_seconds",
		"How long ago Postgres answered what it was asked for these metrics; without an answer yet, how long the relay has run.",
		"It is asked every 15 s, less often if that takes long. After a minute the other metrics of this section are left out: the relay cannot reach Postgres, or the queries take too long.")
	famReadDuration = database.gauge("database_read_duration_seconds",
		"How long the last look into Postgres took.", "")
	famReadFailures = database.counter("database_read_failures_total",
		"Looks into Postgres that failed.", "The log says why, once.")
)

var (
	famWithout = database.gauge("without_outcome_messages",
		"Committed messages that are neither dispatched nor deferred nor dead letters, among the newest 100,000.", "")
	famWithoutAge = database.gauge("without_outcome_oldest_age_seconds",
		"How long ago the oldest message without outcome was created, among the newest 100,000; 0 without one.",
		"Milliseconds in normal life. Minutes: no relay runs, or it does not stream, or outcomes cannot be written. A transaction that stays open for long shows here, too, when it commits.")
	famWaiting = database.gauge("deferred_messages",
		"Messages that wait in the table, by reason, of the first 100,000.", "`outbox-relay status` has the first of each.", "reason")
	famWaitingAge = database.gauge("deferred_oldest_age_seconds",
		"How long ago the first of the messages was deferred that wait in the table; 0 without one.", "", "reason")
	famUnknownAge = database.gauge("unknown_outcome_oldest_age_seconds",
		"How long ago a request went out first for a deferred message that the queue may have accepted; 0 without one.",
		"After `RELAY_KEY_WINDOW` (24 h) the queue may have forgotten the key, and the message can arrive twice.")
	famDead = database.gauge("dead_letter_messages",
		"Dead letters that need a person, by reason, of the first 100,000.", "`outbox-relay dead-letters list`.", "reason")

	famClaims = database.gauge("claims_rows",
		"Claims of consumers, estimated by the statistics of Postgres.", "")
	famExpiredAge = database.gauge("claims_oldest_expired_age_seconds",
		"How long ago the oldest claim expired that has not been removed; 0 without one, and if the role may not look.",
		"More than some minutes: no relay runs, or retention fails.")
	famTransaction = database.gauge("oldest_transaction_age_seconds",
		"How long the oldest transaction of others has been open: one that has written (writer) or was prepared (prepared), in any database, and one that only reads, in this one (reader); 0 without one. Writers and readers are missing for a role without pg_read_all_stats.",
		"Writers and prepared ones keep WAL for the slot and a new slot from being made, all of them keep vacuum from its work. `outbox-relay doctor` (D33, D34) names them.", "kind")
	famSkew = database.gauge("clock_skew_seconds",
		"How far the clock of the server is ahead of that of the relay's machine at least; less than 0 behind it.",
		"Latencies and ages are wrong by it. Let a time service set both.")
	famCertificate = database.gauge("database_certificate_expiry_timestamp_seconds",
		"When the first of the certificates expires by which the server proves who it is (server), or the relay does (client), of the connection for these metrics, which is made anew each hour. Missing without TLS, and where the server is not verified.",
		"From then on no new connection can be made. Renew it before.", "certificate")
	famTableRows = database.gauge("table_rows",
		"Rows of a table of the outbox, by the statistics of Postgres.", "", "table")
	famTableBytes = database.gauge("table_bytes",
		"Size of a table of the outbox with its indexes.", "", "table")
	famDeadRows = database.gauge("table_dead_rows",
		"Rows that wait for vacuum, by the statistics of Postgres.", "", "table")
)

var (
	classReasons    = classNames()
	deferredReasons = append([]string{"held", "scheduled", "recovered", "redriven", "dead_letter", relay.OtherReasons}, classReasons...)
	deadReasons     = append([]string{"attempts_exhausted", "crashed_relay", relay.OtherReasons}, classReasons...)
)

func classNames() (names []string) {
	for class := relay.UnknownOutcome; class <= relay.Refused; class++ {
		names = append(names, class.String())
	}
	return names
}

// fresh is how long figures are exported.
const fresh = time.Minute

// database exports what Postgres knew when it was asked last.
func (m *Metrics) database(to sink, now time.Time) {
	seen := m.watch.last()
	to.put(famAge, max(0, now.Sub(seen.at).Seconds()))
	to.put(famReadDuration, seen.took.Seconds())
	to.count(famReadFailures, seen.failures)
	for certificate, expires := range seen.expiries {
		to.put(famCertificate, unix(&expires), certificate)
	}
	f := seen.figures
	if f == nil || now.Sub(seen.at) > fresh {
		return
	}
	slot(to, f)
	known(to, famTimeToLoss, seen.timeToLoss)
	to.put(famWritten, float64(f.WrittenBytes))
	known(to, famOwnWAL, seen.own)
	known(to, famHorizonHeld, seen.horizonHeld)
	backlog(to, f)
	to.put(famClaims, float64(f.Claims.Rows))
	to.put(famExpiredAge, orZero(f.Claims.OldestExpiredSeconds))
	for _, table := range f.Tables {
		to.put(famTableBytes, float64(table.Bytes), table.Name)
		to.put(famDeadRows, float64(table.DeadRows), table.Name)
		to.put(famTableRows, float64(table.Rows), table.Name)
	}
	known(to, famTransaction, f.Transactions.Writer, "writer")
	known(to, famTransaction, f.Transactions.Prepared, "prepared")
	known(to, famTransaction, f.Transactions.Reader, "reader")
	to.put(famSkew, f.Ahead)
}

func backlog(to sink, f *status.Figures) {
	to.put(famWithout, float64(f.WithoutOutcome.Count))
	to.put(famWithoutAge, orZero(f.WithoutOutcome.OldestSeconds))
	waiting, ages := map[string]int64{}, map[string]float64{}
	for i := range f.DeferredReasons {
		r := &f.DeferredReasons[i]
		reason := oneOf(deferredReasons, r.Reason)
		waiting[reason] += r.Count
		ages[reason] = max(ages[reason], orZero(r.OldestSeconds))
	}
	for _, reason := range deferredReasons {
		to.put(famWaiting, float64(waiting[reason]), reason)
		to.put(famWaitingAge, ages[reason], reason)
	}
	to.put(famUnknownAge, orZero(f.OldestUnknownSeconds))
	dead := map[string]int64{}
	for _, r := range f.DeadLetterReasons {
		dead[oneOf(deadReasons, r.Reason)] += r.Count
	}
	for _, reason := range deadReasons {
		to.put(famDead, float64(dead[reason]), reason)
	}
}
