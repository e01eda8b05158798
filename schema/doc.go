// Package schema is the outbox in the database: its tables, view, functions and
// publication as embedded migrations, the rights that each role needs, and the
// check that a program and a database fit together.
//
// # Who writes what
//
//	messages       applications  INSERT; DELETE to withdraw; never UPDATE
//	dispatched     relay         INSERT: the queue accepted the message
//	deferred       relay         waits for a later attempt
//	dead_letters   relay         set aside, needs a person
//	withdrawn      relay         deleted while it was deferred: not sent
//	relays         relay         one row a slot: position and epoch
//	queues         operators     settings of single queues
//	claims         consumers     the events that they have handled
//	schema_version migrations    one row a migration
//
// A message is one row that nobody changes; what became of it is a row beside it,
// in one of the relay's tables. No foreign key joins the two sides: the relay
// may know of a message before a query can see it, and its writes take no locks
// on rows of the application. The view message_status joins them for people.
//
// What must hold is a constraint with a name (messages_key_valid,
// messages_payload_size, ...), so that the application hears of it at its
// insert and can tell which limit it broke, not the operator at night. A trigger
// refuses to update messages: the queue may have seen the bytes that a key
// stands for.
//
// Every language can use the functions
//
//	enqueue(key, queue, payload, ...)    the id, or null if the key is there already
//	claim(consumer, event_id, retention) true for exactly one of all callers
//
// They run with the rights of their caller, and look for names in pg_catalog and
// the outbox only, whatever the caller's search_path says. record_position is
// the relay's: it writes the confirmed flush and fails with SQLSTATE OR001 if
// another relay has taken the slot over, and it holds the epoch until the
// transaction ends.
//
// # Migrations
//
// [Migrate] applies what is missing, each migration in a transaction of its own
// together with its row in schema_version. Two runs at once wait for each other;
// the primary key of that table is what keeps a migration from being applied
// twice. There is no way down: a mistake is repaired by a later migration.
//
// [Print] writes the same SQL for people who apply it by hand, and leaves the
// same database behind, down to its last catalog row. [Check] compares what
// is there with [Version] and returns a [*VersionError] if it is too old. A newer
// schema is fine: after a release, migrations only add, so that a program can be
// taken back to its last version without touching the database.
//
// The publication is part of the first migration, and so is older than any slot.
// It publishes the inserts into messages and nothing else: what the relay writes
// does not come back through its own slot, and no other table is touched.
//
// # Names
//
// The names of the schema and the publication are settings. They are quoted
// wherever they appear, and appear in no string and no function body, so they may
// hold any character that can be meant.
//
// # Rights
//
// [Grants] writes the SQL for five roles: an owner for the migrations,
// applications, the relay, monitoring, and operators. The relay needs no superuser, owns
// nothing, and cannot change a message.
package schema
