// Package consumer acts on events exactly once in effect, however often they are
// delivered: those that the relay brought into a queue, and webhooks from
// elsewhere.
//
//	books := &consumer.Consumer{Name: "books", DB: pool, Handler: func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
//		_, err := tx.Exec(ctx, "insert into entries (event, body) values ($1, $2)", m.ID, m.Data)
//		return err
//	}}
//	loop, err := consumer.NewLoop(books, queue, consumer.CloudEvents, consumer.LoopConfig{})
//	err = loop.Run(ctx)
//
// # How once comes about
//
// A queue delivers at least once, and so does every sender of webhooks. What
// makes that once is the database: the claim of the event's id ([outbox.Claim]),
// the work of the handler and the commit are one transaction. A delivery whose
// event is claimed already is acknowledged without any work. A handler that fails
// or panics, a process that dies, a server that is gone leave neither work nor
// claim, and the next delivery is the first one again. The acknowledgement comes
// after the commit: if it is lost, the event comes once more and is a repeat.
//
// That holds for what the handler does through its transaction. What it does
// otherwise (mails, requests to others) happens with each attempt; let it write a
// message with [outbox.Enqueue] in the same transaction instead. The one who gets
// that message makes the request, with the event's id as its idempotency key; see
// docs/consumers.md and examples/support.
//
// # What it needs
//
// The id of the event, the same for all deliveries: the envelope ([Plain],
// [CloudEvents]) or the sender ([Infrai], [Stripe], [Shopify], [GitHub], [HeaderID],
// [BodyID]) takes it from where it is. The queue's own message_id is none.
// What cannot be read, or is not signed as it should be, claims nothing.
//
// The role of the application needs USAGE on the schema of the outbox, SELECT,
// INSERT and UPDATE on its table claims, and EXECUTE on its function claim.
//
// # Order
//
// Several messages are at work at once, and a standard queue promises no order
// anyway. Where order matters, take a FIFO queue and a [LoopConfig].Concurrency of
// 1, or write handlers that look at the time or the version of what they change.
package consumer
