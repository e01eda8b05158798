package relay

import (
	"strconv"
	"time"
)

// columns holds what a batch writes beside its marks, as arrays, one per column.
type columns struct {
	dead struct {
		ids        []int64
		reasons    []string
		attempts   []int32
		statuses   []*int32
		codes      []*string
		texts      []*string
		requestIDs []*string
		unknown    []*time.Time
	}
	deferred deferredColumns
	// postponed are rows of deferred that change.
	postponed deferredColumns
	requeued  struct {
		ids          []int64
		orderingKeys []*string
	}
	undefer   []int64 // messages that leave the table deferred
	withdrawn []int64
	released  []int64
}

// deferredColumns are those of deferred.
type deferredColumns struct {
	ids          []int64
	xids         []*string
	queues       []string
	orderingKeys []*string
	reasons      []string
	attempts     []int32
	charged      []int32
	notBefore    []*time.Time
	statuses     []*int32
	texts        []*string
	unknownSince []*time.Time
}

func columnsOf(batch []*outcome) *columns {
	c := &columns{}
	for _, o := range batch {
		c.add(o)
	}
	return c
}

func (c *columns) add(o *outcome) {
	id, attempts := o.row().ID, int32(o.message.attempts)
	switch o.state {
	case dispatched:
	case dead:
		d, f := &c.dead, o.failure
		d.ids = append(d.ids, id)
		d.reasons = append(d.reasons, o.reason)
		d.attempts = append(d.attempts, attempts)
		d.statuses = append(d.statuses, f.status())
		d.codes = append(d.codes, orNull(storable(f.Code)))
		d.texts = append(d.texts, f.text(o.reason))
		d.requestIDs = append(d.requestIDs, orNull(storable(f.RequestID)))
		d.unknown = append(d.unknown, orNullTime(o.message.unknownAt))
		switch {
		case o.blocks && o.message.cached:
			c.postponed.add(o, reasonDeadLetter)
		case o.blocks:
			c.deferred.add(o, reasonDeadLetter)
		}
	case deferred:
		c.deferred.add(o, o.reason)
	case postponed:
		c.postponed.add(o, o.reason)
	case requeued:
		c.requeued.ids = append(c.requeued.ids, id)
		c.requeued.orderingKeys = append(c.requeued.orderingKeys, orNull(o.row().OrderingKey))
	case withdrawn:
		c.withdrawn = append(c.withdrawn, id)
	case released:
		c.released = append(c.released, id)
	}
	if o.leaves() {
		c.undefer = append(c.undefer, id)
	}
}

func (d *deferredColumns) add(o *outcome, reason string) {
	m := o.message
	orderingKey := orNull(m.row.OrderingKey)
	if reason == reasonScheduled {
		orderingKey = nil // takes its place in its lane when its time has come
	}
	d.ids = append(d.ids, m.row.ID)
	d.xids = append(d.xids, xid8(m.row.XID))
	d.queues = append(d.queues, m.row.Queue)
	d.orderingKeys = append(d.orderingKeys, orderingKey)
	d.reasons = append(d.reasons, reason)
	d.attempts = append(d.attempts, int32(m.attempts))
	d.charged = append(d.charged, int32(m.charged))
	d.notBefore = append(d.notBefore, orNullTime(o.notBefore))
	d.statuses = append(d.statuses, o.failure.status())
	d.texts = append(d.texts, o.failure.text(reason))
	d.unknownSince = append(d.unknownSince, orNullTime(m.unknownAt))
}

// statement is a statement with its arguments.
type statement struct {
	sql  string
	args []any
}

// statements write the columns.
func (c *columns) statements(sql *statements) (list []statement) {
	add := func(rows int, text string, args ...any) {
		if rows > 0 {
			list = append(list, statement{text, args})
		}
	}
	d := &c.dead
	add(len(d.ids), sql.dead, d.ids, d.reasons, d.attempts, d.statuses, d.codes, d.texts, d.requestIDs, d.unknown)
	w := &c.deferred
	add(len(w.ids), sql.deferred, w.ids, w.xids, w.queues, w.orderingKeys, w.reasons, w.attempts, w.charged,
		w.notBefore, w.statuses, w.texts, w.unknownSince)
	w = &c.postponed
	add(len(w.ids), sql.postponed, w.ids, w.orderingKeys, w.reasons, w.attempts, w.charged, w.notBefore, w.statuses, w.texts, w.unknownSince)
	add(len(c.requeued.ids), sql.requeued, c.requeued.ids, c.requeued.orderingKeys)
	add(len(c.withdrawn), sql.withdrawn, c.withdrawn)
	add(len(c.released), sql.released, c.released)
	add(len(c.undefer), sql.undefer, c.undefer)
	return list
}

// marks are the rows of dispatched of a batch, as arrays.
type marks struct {
	ids             []int64
	queueMessageIDs []*string
	attempts        []int32
	duplicates      []bool
}

func marksOf(batch []*outcome) *marks {
	m := &marks{}
	for _, o := range batch {
		if o.state != dispatched {
			continue
		}
		m.ids = append(m.ids, o.row().ID)
		m.queueMessageIDs = append(m.queueMessageIDs, orNull(o.receipt.QueueMessageID))
		m.attempts = append(m.attempts, int32(o.message.attempts))
		m.duplicates = append(m.duplicates, o.duplicate)
	}
	return m
}

func (e *PublishError) status() *int32 {
	if e == nil {
		return nil
	}
	return orNull(int32(e.Status))
}

func (e *PublishError) text(reason string) *string {
	if e == nil {
		return nil
	}
	return orNull(storable(e.beside(reason)))
}

func xid8(xid uint64) *string {
	if xid == 0 {
		return nil
	}
	text := strconv.FormatUint(xid, 10)
	return &text
}

func orNullTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
