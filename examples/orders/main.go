// Command orders drills the application in the folder app: deliveries come at once
// and again, workers and the relay are killed, secrets are rotated, and the
// warehouse is asked once for each order. It needs nothing but Go and a Postgres
// server's programs, and no account anywhere.
package main

import "github.com/outbox-relay/outbox-relay/examples/internal/drill"

func main() { drill.Main(orders) }
