// Package app keeps invoices in step with Stripe and books each payment once.
//
//	Stripe --> Webhooks --> invoices + outbox --> relay --> queue "bookings" --> Books --> bookings
//	              ^
//	   Reconcile, each night
//
// Every arrow delivers more than once: Stripe repeats webhooks for days and in any
// order, the nightly run brings all of them again, the relay publishes again when
// an answer was lost, and the queue delivers again when a lease ends. Each arrival
// begins with a claim of the event's id in the transaction of its work, so that
// none of this needs a thought further in.
//
// [Run] is the whole program; its parts are for tests.
package app

// Tables are the application's own.
const Tables = `
create table invoices (
	id      text primary key,
	amount  bigint not null,
	status  text not null default 'open' check (status in ('open', 'failed', 'paid')),
	changes integer not null default 0
);
create table bookings (
	id      bigint generated always as identity primary key,
	invoice text not null references invoices,
	amount  bigint not null
);
`

// Bookings is the queue between the two halves. It is a FIFO queue: the books are
// kept in the order of the payments.
const Bookings = "bookings"
