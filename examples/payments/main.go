// Command payments drills the application in the folder app: Stripe, the relay and
// the queue repeat, reorder and forge, and each payment is booked once. It needs
// nothing but Go and a Postgres server's programs, and no account anywhere.
package main

import "github.com/outbox-relay/outbox-relay/examples/internal/drill"

func main() { drill.Main(payments) }
