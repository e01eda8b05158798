package main

import (
	"context"
	"fmt"

	"github.com/outbox-relay/outbox-relay/examples/internal/drill"
	"github.com/outbox-relay/outbox-relay/examples/orders/app"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// killedBeforeTheCommit kills a worker that has taken the goods out of stock, and is
// about to write its message.
func killedBeforeTheCommit(s *shop) {
	s.Scene("a worker is killed after its write and before its commit")
	s.place(1003)
	s.AwaitAccepted(app.Orders, int(s.placed))
	release := s.Hold("outbox.messages")
	worker := s.worker()
	s.AwaitWaiting(1)
	const writing = `select count(*) from pg_locks where relation = 'stock'::regclass and mode = 'RowExclusiveLock'`
	written := s.Count(writing)
	s.Must(worker.Kill())
	release()
	s.AwaitCount(0, writing)
	s.Prove("a worker that dies before its commit has done nothing",
		drill.Is("writes before", written, 1), drill.Is("claims", s.Claims(app.WorkerName, "fulfil-1003"), 0),
		drill.Is("shipments", s.Count(`select count(*) from shipments where order_id = '1003'`), 0),
		drill.Is("out of stock", mugs-s.Count(`select available from stock`), 2*(s.placed-1)),
		drill.Is("messages", s.Count(`select count(*) from outbox.messages where key = 'pick-1003'`), 0))
	s.Pass(lease)
	next := s.worker()
	s.settle()
	s.proveOnce("the next worker does all of it", drill.Is("claims", s.Claims(app.WorkerName, "fulfil-1003"), 1))
	s.Stop(next)
}

// killedBeforeTheAck kills a worker whose work has committed, while it tells the
// queue so.
func killedBeforeTheAck(s *shop) {
	s.Scene("a worker is killed after its commit and before its answer to the queue")
	deaf := s.Fault(emulator.Fault{Route: "queue.ack", Queue: app.Orders, Hang: true})
	s.place(1004)
	worker := s.worker()
	s.AwaitAnswers("queue.ack", app.Orders, emulator.Failed, 1) // it waits for one that does not come
	shipped := s.Count(`select count(*) from shipments where order_id = '1004'`)
	s.Must(worker.Kill())
	deaf()
	left := s.Left(app.Orders)
	s.Pass(lease)
	next := s.worker()
	s.AwaitLine(next, "repeated event=fulfil-1004")
	s.settle()
	s.proveOnce("the next worker finds it done", drill.Is("shipped before", shipped, 1), drill.Is("not acked by the first", left, 1))
	s.Stop(next)
}

// relayKilled kills the relay between the queue's taking a message and its knowing
// so.
func relayKilled(s *shop) {
	s.Scene("the relay is killed after the warehouse's queue has taken a message and before it has heard so")
	deaf := s.Fault(emulator.Fault{Route: "queue.publish", Queue: app.Warehouse, Store: true, Cut: emulator.CutReset})
	worker := s.worker()
	s.place(1005)
	s.Await(func(context.Context) error {
		s.PassRetry(app.Orders, retryDelay)
		if n := s.Accepted(app.Warehouse); int64(n) != s.placed {
			return fmt.Errorf("%d calls of the warehouse for %d orders", n, s.placed)
		}
		return nil
	})
	// The message may be in its queue before its commit is visible here, and the
	// relay writes the outcome of the one before it a moment later.
	s.AwaitCount(1, `select count(*) from outbox.messages where key = 'pick-1005'`)
	s.AwaitUndispatched(1)
	s.Must(s.Relay.Kill())
	deaf()
	unheard, before := s.Undispatched(), s.Answers("queue.publish", app.Warehouse, emulator.Replayed)
	s.StartRelay()
	s.settle()
	again := s.Answers("queue.publish", app.Warehouse, emulator.Replayed) > before
	s.proveOnce("the next relay publishes again under the same key, and the queue knows it",
		drill.Is("without outcome at the kill", unheard, 1), drill.Is("published again", again, true))
	s.Stop(worker)
}
