package cdc

import "fmt"

// unreservedError is the name of a slot that the server is about to give up. How
// much WAL it keeps is left out: that grows, and the trouble is told once.
type unreservedError string

func (e unreservedError) Error() string {
	return fmt.Sprintf("slot %q will be lost at the next checkpoint: it keeps more WAL than max_slot_wal_keep_size allows", string(e))
}

// Hint is a sentence that says what to do.
func (unreservedError) Hint() string {
	return "raise max_slot_wal_keep_size and reload Postgres, which gains time; `outbox-relay status` shows what holds the slot back; " +
		"if it is lost all the same, the relay takes the messages from the table"
}
