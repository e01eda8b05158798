// Package drill plays what goes wrong around an example, and proves what holds
// all the same.
//
// A drill has what an application has in production: a Postgres server with the
// outbox in it, the relay as a process of its own, and an Infrai queue, which here
// is the emulator over HTTP. All of it is made for the drill and goes with it.
//
//	var shop = drill.Drill{
//		Name:      "shop",
//		Invariant: "one parcel for each order, however often it is delivered",
//		Tables:    app.Tables,
//		Queues:    []drill.Queue{{Name: "orders"}},
//		Play:      play,
//	}
//
//	func play(s *drill.Stage) {
//		s.Scene("an order is placed twice")
//		s.Must(app.Place(s.Context(), s.DB, "1041"))
//		s.AwaitCount(1, `select count(*) from parcels`)
//		s.Prove("one parcel for one order", drill.Is("parcels", s.Count(`select count(*) from parcels`), 1))
//	}
//
// The example is a program and a test with it:
//
//	func main() { drill.Main(shop) }
//
//	func TestMain(m *testing.M) {
//		drill.Child(shop)
//		goleak.VerifyTestMain(m)
//	}
//
//	func TestShop(t *testing.T) { drill.Test(t, shop) }
//
// The program tells what it does, prints a line "proved: ..." for each proof and
// at the end "holds: " with the invariant, and exits with 0; or it says what does
// not hold, prints the logs, and exits with 1. What is wrong ends a drill where it
// is noticed: Play needs no errors of its own. It is called in one goroutine, and
// that one alone may call Must, Prove, and whatever else ends the drill.
//
// # Time
//
// A drill never waits for time to pass: it moves it ([Stage.Pass]). The emulator's
// clock stands still and is moved forward, for leases, delays and windows, so that
// all happens at exactly its second; [Stage.Now] is that clock, for whatever of the
// application takes one. A message that was nacked with a delay comes back when the
// delay has been passed. Postgres has the machine's clock, which nobody can move;
// instead, the claims in it are made as much older.
// What waits, waits for something to become true, and no longer than [Patience].
//
// # Processes
//
// What has to be killed runs in a process of its own: a [Role] of the drill, which
// [Stage.Spawn] starts by starting this very program again.
package drill
