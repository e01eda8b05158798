// Package emulator is a local Infrai queue: the routes, the envelope, the
// idempotency keys, FIFO order, delays, leases and dead letters, in memory and
// on one port. Applications develop and test against it, and it can be told to
// misbehave the way networks and services do.
//
//	server := emulator.New(emulator.Config{Queues: []string{"orders"}})
//	defer server.Close()
//	web := httptest.NewServer(server)
//
// What it answers comes from three kinds of sources: the queue's own
// documentation, what many clients do alike, and assumptions where nothing is
// public. Every assumption that could matter is a switch ([Settings]), so that
// an application can be tried against each answer. docs/emulator.md lists what
// is known and what is assumed.
//
// A test controls a [Server] through Go methods, anybody else through the
// routes below /_emulator/: settings, faults, clock, journal, counters. These
// need no key and are not part of the queue.
//
// Everything lives in memory and is bounded by [Config]: the journal and the
// remembered keys by number and bytes, the messages by their retention. A
// Server is safe for concurrent use.
package emulator
