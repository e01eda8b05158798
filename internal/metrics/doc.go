// Package metrics tells Prometheus how a relay is doing.
//
// Three sources stand behind the numbers. What a relay counts and what it knows of
// itself is read at each scrape, from memory: that asks nobody and holds nothing
// up. What only Postgres knows, the slot and the tables, is read in the background
// by one set of queries ([Metrics.Run]) and kept for the next scrapes, so that no
// scraper, and no number of them, puts load on the database. And the collectors of
// Prometheus's own client tell of the process.
//
// Every relay exports the same names, whether it moves messages, waits for another
// one or cannot reach Postgres, with two exceptions: what is not known is not
// exported rather than exported as 0 (the limit of a slot without one, and all that
// Postgres knows once it is older than a minute), and queues come with their first
// request. The number of time series has a bound: of queues it is
// relay.Config.MetricsQueues, and everything else that is a label comes from a list
// of this program's own.
//
// Each metric is declared once, with what it means and what to do about it, in the
// file of its section; docs/metrics.md is written from that.
package metrics
