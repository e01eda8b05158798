package metrics

import "github.com/outbox-relay/outbox-relay/internal/status"

var (
	famSlotStatus = database.gauge("slot_wal_status",
		"What becomes of the slot's WAL: 1 for one of the states, 0 for the others.",
		"`missing`: there is no slot, as in poll mode. `extended`: it keeps more than `max_wal_size`. `unreserved`: the next checkpoint may cost the slot. `lost`: the relay makes a new one, and takes from the table what the old one would have shown.", "status")
	famSlotActive = database.gauge("slot_active",
		"1 while somebody reads the slot.", "Nobody does while no relay runs; the slot keeps WAL.")
	famSlotInactive = database.gauge("slot_inactive_seconds",
		"How long nobody has read the slot. Known from Postgres 17 on, and while nobody reads it.", "Mind `idle_replication_slot_timeout`.")
	famIdleLimit = database.gauge("slot_idle_limit_seconds",
		"After so long without a reader the server gives the slot up: idle_replication_slot_timeout. Known from Postgres 18 on, missing without a limit.",
		"Longer than a weekend without anybody on call: two days, or none.")
	famRetainedWAL = database.gauge("slot_retained_bytes",
		"WAL that the server keeps for the slot.",
		"If it grows and unconfirmed WAL does not, an old or a prepared transaction holds it.")
	famUnconfirmed = database.gauge("slot_unconfirmed_bytes",
		"WAL behind the confirmed flush.", "If it grows, no relay streams, or outcomes cannot be written.")
	famSafe = database.gauge("slot_safe_bytes",
		"WAL that may still be written before the slot can be lost. Missing without a limit.", "")
	famLimit = database.gauge("slot_limit_bytes",
		"How much WAL the slot may keep: max_slot_wal_keep_size. Missing without a limit.",
		"Without a limit a relay that is gone fills the disk.")
	famTimeToLoss = database.gauge("slot_time_to_loss_seconds",
		"How long until the slot can be lost if nothing more is confirmed, at the speed at which WAL was written in the last five minutes. Missing without a limit, +Inf while nothing is written.",
		"Below an hour with retained WAL that grows: see who holds the slot, raise `max_slot_wal_keep_size`.")
	famWritten = database.counter("wal_written_bytes_total",
		"WAL that the server has written, by everybody.", "")
	famOwnWAL = database.counter("wal_own_bytes_total",
		"WAL that the relays of this slot have written, for outcomes, sweep and retention, as long as this process has looked. Known from Postgres 18 on.",
		"Divided by the messages it is what a message costs the server beside its own insert.")
	famDecoded = database.counter("slot_decoded_bytes_total",
		"Changes of all tables of the database that the server has decoded for the slot.",
		"Much more than `outbox_relay_stream_bytes_total`: other tables of the database are written a lot, which costs the server CPU.")
	famSpilledTransactions = database.counter("slot_spilled_transactions_total",
		"Transactions that were too large to be decoded in memory, and went to the server's disk first.",
		"Of any table of the database. Make them smaller, or raise `logical_decoding_work_mem`.")
	famSpilled = database.counter("slot_spilled_bytes_total",
		"Bytes that the server wrote to disk to decode large transactions.", "")
	famHorizonAge = database.gauge("slot_catalog_xmin_age_transactions",
		"How many transactions have begun since the oldest one for which the slot keeps old rows of the system catalogs. Missing without a slot.",
		"A few thousand in normal life. Vacuum cannot clean the catalogs behind it, and far behind it the server stops taking transactions: see what holds the slot back.")
	famHorizonHeld = database.gauge("slot_catalog_xmin_held_seconds",
		"How long this relay has seen that transaction unchanged.", "Says nothing on a server that is not written to.")
	famFailover = database.gauge("slot_failover",
		"1 if the slot was made to go along with a failover. Known from Postgres 17 on.", "")
	famFailoverReady = database.gauge("slot_failover_ready",
		"1 if the standbys are connected that the slot waits for, or one that keeps slots if it waits for none, and have slots of their own. Missing where the slot follows no failover, no standby keeps slots and none is waited for.",
		"0: messages may not come while a standby is gone that the slot waits for, and after a failover the relay makes a new slot. `outbox-relay doctor` (D36, D37).")
	famSlotMoves = database.counter("slot_moves_total",
		"How often somebody else had moved the slot forward.",
		"docs/operations.md, \"The slot was moved\".")
)

var walStates = []string{"reserved", "extended", "unreserved", "lost", "missing"}

// slot exports what Postgres knew of the slot.
func slot(to sink, f *status.Figures) {
	s := f.Slot
	if s == nil {
		s = &status.Slot{WALStatus: "missing"}
	}
	to.states(famSlotStatus, s.WALStatus, walStates)
	to.flag(famSlotActive, s.Active)
	if since := f.Replication.InactiveSince; since != nil && !s.Active {
		to.put(famSlotInactive, age(f.At, since))
	}
	known(to, famIdleLimit, f.Replication.IdleLimitSeconds)
	known(to, famRetainedWAL, s.RetainedBytes)
	known(to, famUnconfirmed, s.UnconfirmedBytes)
	known(to, famSafe, s.SafeBytes)
	known(to, famLimit, s.LimitBytes)
	replication(to, &f.Replication)
	moves := 0
	if f.Relay != nil {
		moves = f.Relay.SlotMoves
	}
	to.put(famSlotMoves, float64(moves))
}

// replication exports what only newer servers know, or only with a slot.
func replication(to sink, r *status.SlotFigures) {
	known(to, famDecoded, r.DecodedBytes)
	known(to, famSpilledTransactions, r.SpilledTransactions)
	known(to, famSpilled, r.SpilledBytes)
	known(to, famHorizonAge, r.CatalogAge)
	if r.Failover != nil {
		to.flag(famFailover, *r.Failover)
	}
	if r.FailoverReady != nil {
		to.flag(famFailoverReady, *r.FailoverReady)
	}
}
