// Package outbox is what an application imports: it says what a message is and
// writes it inside the caller's own transaction.
package outbox
