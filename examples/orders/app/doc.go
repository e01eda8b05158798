// Package app takes orders of a Shopify shop and has each one picked in the
// warehouse once.
//
//	Shopify --> Receive --> orders + outbox --> relay --> queue "orders" --> Work
//	                                                                          |
//	           warehouse <-- queue "warehouse" <-- relay <-- outbox + stock <-+
//
// What happens once is held in two ways. A claim stops repeats at the door, cheaply
// and for as long as it is kept. The rows of the business outlive it: an order or a
// shipment that is there is not made again, whatever its event's id and however
// late it comes.
//
// The warehouse is another system: a request to it from within a handler would
// happen with every attempt, also those that are rolled back. So the handler does
// not ask the warehouse, it writes a message in its transaction.
//
// [Receive] and [Work] are two programs, which may run several times each.
package app

// Tables are the application's own.
const Tables = `
create table stock (
	article   text primary key,
	available integer not null check (available >= 0)
);
create table orders (
	id       text primary key,
	receipt  bigint generated always as identity,
	article  text not null references stock,
	quantity integer not null check (quantity > 0)
);
create table shipments (
	order_id   text primary key references orders,
	created_at timestamptz not null default now()
);
`

// The queues: orders to be shipped, and what the warehouse has to pick.
const (
	Orders    = "orders"
	Warehouse = "warehouse"
)
