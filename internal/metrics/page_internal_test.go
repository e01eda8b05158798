package metrics

import (
	"fmt"
	"strings"
	"testing"
)

//go:generate go test . -run ^(TestPage|TestMetrics_Golden)$ -update

const page = "../../docs/metrics.md"

// TestPage compares docs/metrics.md with the metrics that it describes.
func TestPage(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(intro)
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | what it is | what to do |\n| --- | --- | --- | --- | --- |\n", s.title)
		for _, f := range s.families {
			labels := make([]string, len(f.labels))
			for i, l := range f.labels {
				labels[i] = "`" + l + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.name, f.kind, strings.Join(labels, ", "), f.help, f.advice)
		}
	}
	b.WriteString(recipes)
	compare(t, page, b.String())
}

const intro = `# Metrics

<!-- Generated from internal/metrics; change what is said there, then run: make generate -->

A relay answers Prometheus at ` + "`/metrics`" + ` of its admin server (` + "`RELAY_ADMIN_LISTEN`" + `, 127.0.0.1:9464 unless somebody chose
another address). Beside the metrics below there are those of Go (` + "`go_`" + `) and of the process (` + "`process_`" + `).

- **Every relay exports the same names**, also one that waits for another. What is about the slot and the tables is the same
  in all relays of one slot: take the maximum, or one of them. Counters begin at 0 with each process.
- **A scrape asks nobody.** Postgres is asked every 15 seconds in the background, on a connection of its own, with a limit on
  the time and bounds on what is counted: at most the newest 100,000 messages, whatever the size of the tables. A server
  that takes more than 0.75 s to answer is asked less often.
- **What is not known is missing**, not 0: the limit of a slot without one, and everything that Postgres knows when it has not
  answered for a minute.
- **The label ` + "`queue`" + `** has the names of the first 50 queues to which a process sends (` + "`RELAY_METRICS_QUEUES`" + `) and ` + "`other`" + ` for the
  rest. Nothing else that an application writes becomes a label, and no payload, key or ordering key ever does.
- Seconds and bytes everywhere; a moment (` + "`_timestamp_seconds`" + `) is seconds since 1970.
`

const recipes = `
## Questions

| question | query |
| --- | --- |
| messages a second | ` + "`sum(rate(outbox_relay_dispatched_total[5m]))`" + ` |
| how fast, for 99 of 100 | ` + "`histogram_quantile(0.99, sum by (le) (rate(outbox_relay_latency_seconds_bucket{path=\"live\"}[5m])))`" + ` |
| share of messages that were accepted within 5 s of their commit, without those that had to wait in the table | ` + "`sum(rate(outbox_relay_latency_seconds_bucket{path=\"live\",le=\"5\"}[1h])) / sum(rate(outbox_relay_latency_seconds_count{path=\"live\"}[1h]))`" + ` |
| requests for a message | ` + "`sum(rate(outbox_relay_requests_total[1h])) / sum(rate(outbox_relay_dispatched_total[1h]))`" + ` |
| share of requests that fail, by queue | ` + "`1 - sum by (queue) (rate(outbox_relay_requests_total{class=\"accepted\"}[5m])) / sum by (queue) (rate(outbox_relay_requests_total[5m]))`" + ` |
| backlog, by reason | ` + "`max by (reason) (outbox_relay_deferred_messages)`" + ` |
| is the backlog shrinking | ` + "`deriv(sum(max by (reason) (outbox_relay_deferred_messages))[15m:1m])`" + ` |
| WAL that the server writes a second | ` + "`max(rate(outbox_relay_wal_written_bytes_total[5m]))`" + ` |
| WAL that relays write for a message, from Postgres 18 on | ` + "`max(rate(outbox_relay_wal_own_bytes_total[1h])) / sum(rate(outbox_relay_dispatched_total[1h]))`" + ` |
| WAL that the server writes for a message, with all that others write | ` + "`max(rate(outbox_relay_wal_written_bytes_total[1h])) / sum(rate(outbox_relay_dispatched_total[1h]))`" + ` |
| share of what is decoded for the slot that is of the outbox | ` + "`sum(rate(outbox_relay_stream_bytes_total[1h])) / max(rate(outbox_relay_slot_decoded_bytes_total[1h]))`" + ` |
| which relay moves messages | ` + "`outbox_relay_leader == 1`" + ` |
| how full the window is | ` + "`outbox_relay_window_messages / outbox_relay_window_messages_limit`" + ` |
`
