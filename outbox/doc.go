// Package outbox is what an application imports. It writes messages into the
// outbox inside the application's own transaction; the relay takes them to the
// queue.
//
//	tx, err := pool.Begin(ctx)
//	// ... the business rows ...
//	_, err = outbox.Enqueue(ctx, tx, outbox.Message{
//		Key: "order-1041-placed", Queue: "orders", OrderingKey: "order-1041", Payload: order,
//	})
//	err = tx.Commit(ctx)
//
// # What a commit means
//
// A message exists exactly when its transaction committed. After a commit it
// arrives in its queue at least once, however often the relay, the server or
// the network fails in between, and always with the same key and the same
// bytes. After a rollback, also one to a savepoint, it never existed. Nothing
// is sent before the commit, so a message can never tell of something that did
// not happen.
//
// [Enqueue] and [EnqueueSQL] take a transaction and nothing else. A pool or a
// bare connection does not compile in their place: a message that is written
// outside the transaction of its business rows is the mistake that an outbox
// exists to prevent.
//
// # Keys
//
// The key is the message's identity for good: the queue recognises repeats by
// it, and so do consumers. Derive it from what happened ("order-1041-placed"),
// not from the attempt (a random id), and writing the same event twice becomes
// harmless: the second write changes nothing and returns [ErrDuplicateKey],
// and the transaction stays usable. It is an error, not a silent success,
// because two different events under one key would otherwise lose the second
// one without a word. A caller that retries whole operations says so:
//
//	if errors.Is(err, outbox.ErrDuplicateKey) {
//		err = nil // written by an earlier attempt
//	}
//
// A key is remembered as long as its row is in the table: for the relay's
// retention time after the message was dispatched.
//
// While another open transaction has written the same key, Enqueue waits for it
// to end: after its commit the key is a duplicate, after its rollback it is
// free. So two transactions that write the same keys in opposite order can
// deadlock as with any unique index, and under repeatable read or serializable
// a key that was committed after the snapshot is a serialization failure
// (SQLSTATE 40001): repeat the transaction.
//
// # Order
//
// Messages of one queue with the same ordering key arrive in the order in which
// their transactions committed, and within one transaction in the order in
// which they were written. Ids do not show this order: an id is handed out at
// the insert, and the transaction with the lower id may commit later. Never
// remember "the last id that I saw" to find new rows; it skips those.
//
// To order two transactions, let the first one's end come before the second
// one's insert, for example by a lock on the business row that both change.
// Messages without an ordering key run freely, and faster.
//
// # Size
//
// A payload is a JSON object of at most [MaxPayloadBytes] bytes, counted as
// Postgres prints it: with a space after each colon and comma, numbers written
// out (1e3 is 1000), escapes undone where JSON allows it, and of repeated names
// the last one only. [Message.Validate] counts the same way. Put large content elsewhere
// and send a reference.
//
// Payload is marshalled by encoding/json; a json.RawMessage or a json.Marshaler
// writes itself. Numbers keep their digits on their way. Text that Postgres
// cannot hold is refused here, before it can abort the transaction: the NUL
// character, half surrogate pairs, bytes that are not UTF-8. In strings of Go
// values encoding/json has already replaced such bytes by U+FFFD.
//
// # Changing one's mind
//
// A message is never edited: its key must keep its bytes. Deleting the row
// withdraws the message only while it waits in the relay's table of deferred
// messages, for example because of DeliverAt; otherwise it may already be on
// its way.
//
// # Rights
//
// The application's role needs USAGE on the schema, INSERT on the columns that
// are written here (key, queue, ordering_key, payload, headers, delay_seconds,
// priority, deliver_at) and SELECT on the columns id and key. It cannot read
// other messages' payloads with that.
//
// All functions are safe for concurrent use, as far as the caller's transaction
// is: one goroutine at a time.
package outbox
