package operate

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// The place of a redriven message in its lane.
//
// deferred is read in the order of position. The relay's own rows take theirs
// from a sequence that begins with 1. Whatever it has put into a lane, or will
// put there, comes after a dead letter of that lane: a message dies when it is
// the first of its lane. So redriven messages go before all of them, to
// positions below zero, and among themselves by id:
//
//	redriven: older ---- before -- x -- next ---- 0 ---- the relay's own ---->
//
// A message without older redriven ones goes far below everything of its queue,
// which leaves room for those that follow it. No other row is moved, because the
// relay may be reading: a row that goes below the position that it has reached
// would not be seen in this round. And no two rows of a queue share a position,
// because one chunk that the relay reads could end between them.

const (
	// placeRoom is left above a message that goes below its whole queue.
	placeRoom = 1 << 32
	// placeStep is left between two redriven ones, for those in between.
	placeStep = 1 << 10
)

// lane is the lane of a message.
type lane struct {
	queue, orderingKey string
	whole              bool // the queue is one lane
}

// place is where a redriven message goes.
type place struct {
	before *int64 // the position of the last older redriven one; nil without
	next   int64  // the next position in use above before, at most 0
	first  int64  // the lowest position of the queue, at most 0
}

// position is one that is not in use. If there is no room left behind the older
// one, which takes many redrives between the same two while the lane stands
// still, it is the first of the queue.
func (p place) position() int64 {
	if p.before != nil {
		if step := min(placeStep, (p.next-*p.before)/2); step > 0 {
			return *p.before + step
		}
	}
	return p.first - placeRoom
}

// Reads the redriven rows of the lane by an index, and two entries of
// deferred_queue.
const sqlPlace = `
with redriven as materialized (
	select d.message_id, d.position from outbox.deferred d
	where d.queue = $2::text and ($4::bool or d.ordering_key = $3::text) and d.position < 0
), older as (
	select max(position) as position from redriven
	where position < (select coalesce(min(position), 0) from redriven where message_id > $1::bigint)
)
select o.position,
	least(0, (select min(d.position) from outbox.deferred d where d.queue = $2::text and d.position > o.position)),
	least(0, (select min(d.position) from outbox.deferred d where d.queue = $2::text))
from older o`

// placeOf finds the position of a message that is to be redriven.
func (o *Operator) placeOf(ctx context.Context, tx pgx.Tx, id int64, lane lane) (int64, error) {
	var p place
	err := tx.QueryRow(ctx, o.in(sqlPlace), id, lane.queue, lane.orderingKey, lane.whole).Scan(&p.before, &p.next, &p.first)
	return p.position(), err
}
