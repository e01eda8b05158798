// Package cdc reads messages from the WAL of Postgres, by logical replication.
//
// It keeps one promise: the confirmed flush never passes a message whose outcome
// is not durable. Whatever happens to this process, to the server or to the
// network between them, the server sends every message again that was not
// resolved.
//
// # How a message moves
//
//	           ┌──────────────────────── Source ────────────────────────┐
//	           │                                                        │
//	slot ──────┼──► wire ──► decoder ──► batch ─────────────────────────┼──► Next
//	pgoutput   │      ▲         │ begin, message, commit                │
//	           │      │         ▼                                       │
//	           │      └──── tracker ◄─────────── inbox ◄────────────────┼─── Resolve
//	           │   standby status                                       │
//	           │                                                        │
//	SQL ◄──────┼──► watch: do we still hold the slot? is all well?      │
//	           └────────────────────────────────────────────────────────┘
//
// One goroutine, the stream, owns the replication connection: it reads, hands
// batches over, and sends the standby status, also while nobody takes the batch.
// A second goroutine, the watch, asks the server by SQL. Everything between the
// two and the callers is an atomic value, a channel, or the inbox.
//
// The server sends whole committed transactions in commit order. Messages are
// handed over as they come, not transaction by transaction, and of those that
// are handed over only counts are kept: memory does not grow with the size of a
// transaction, nor with the backlog.
//
// # What is confirmed
//
// The tracker confirms at the end of a transaction, and only if all messages of
// it and of all before it are resolved. A transaction counts from its Begin on.
// While none is open, the confirmed flush follows the server's keepalives, so a
// quiet outbox holds no WAL, whatever else happens in the cluster.
//
// # Sessions
//
// The slot is the lease: Postgres lets one session stream from it at a time. Open
// waits until it is free, and Close gives it back at once, with the last position
// told. A session ends by itself when the connection breaks, when the server is
// silent, when the slot was taken away, when the server wants to stop, or at a
// message that cannot be read. The next Open starts at the slot's own position;
// no position is kept anywhere else.
//
// Before each session Open makes sure that everything is in place: the primary,
// the same one for all connections, the table, the publication, and only then the
// slot. While messages flow, the watch looks again now and then, because
// Postgres 18 passes silently over what it cannot publish.
//
// # What it does not do
//
// It does not read or write a table, with the exception of the catalog. It does
// not find what the WAL does not show; Created, StartPosition and Problem tell
// when there may be such messages. It decodes nothing but inserts.
package cdc
