// Package scenario runs the whole relay against a real Postgres and the
// emulated queue, breaks something, and counts. Its tests are named after the
// faults that broke other tools.
//
// A [World] holds the parts and remembers what was committed. Its checks look
// from the outside only, at the queue's journal and at the tables:
//
//	all        every committed key was accepted
//	no phantom no other key was ever sent
//	order      for each ordering key the first acceptances are in commit order
//	same       all requests of a key carry the same key and the same bytes
//	marked     every accepted message is in dispatched
//	slot       the confirmed flush is close to the end of the WAL
package scenario
