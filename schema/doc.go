// Package schema holds the tables of the outbox as migrations, and applies,
// prints and checks them.
package schema
