package cdc

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// decoder reads the messages of the output plugin pgoutput, protocol version 1.
//
// It locates the columns of a row by the names in the last Relation message of
// the row's table, so that a table may change while its older rows are still
// on their way. It trusts no length in what it reads: whatever the bytes, it
// returns an error and allocates at most about the size of the message.
type decoder struct {
	schema    string
	relations map[uint32]*relation // nil for a table that is not ours
	latest    uint32               // the table of the last row,
	current   *relation            // and its relation: rows mostly follow rows of the same table
	xid       uint64               // of the open transaction
	committed time.Time            // when that one committed
}

// kind is what a message of the stream means to us.
type kind int

const (
	kindNone   kind = iota // nothing: a relation, a row of another table
	kindBegin              // position is where the transaction's commit record stands
	kindCommit             // position is where the transaction ends
	kindInsert             // a message: the row was filled in
	kindIgnored
)

func newDecoder(schema string) *decoder {
	return &decoder{schema: schema, relations: make(map[uint32]*relation)}
}

// decode reads one message. It fills in row when it returns kindInsert; the
// row does not refer to the message. newest is the newest transaction id that
// the server had given out lately (see [widen]).
func (d *decoder) decode(message []byte, newest uint64, row *outbox.Row) (kind, lsn, error) {
	c := cursor{data: message}
	switch tag := c.byte(); tag {
	case 'I':
		return d.insert(&c, row)
	case 'B':
		return d.begin(&c, newest)
	case 'C':
		return commit(&c)
	case 'R':
		return d.relation(&c)
	case 'U', 'D', 'T', 'Y', 'O', 'M':
		// Update, delete, truncate, type, origin, logical message: somebody
		// widened the publication. None of them makes or unmakes a message.
		return kindIgnored, 0, nil
	default:
		return kindNone, 0, fmt.Errorf("%w: unknown type %q", errMalformed, tag)
	}
}

func (d *decoder) begin(c *cursor, newest uint64) (kind, lsn, error) {
	position := c.lsn()
	committed := c.uint64()
	xid := c.uint32()
	if c.short {
		return kindNone, 0, fmt.Errorf("%w: begin", errMalformed)
	}
	d.xid, d.committed = widen(xid, newest), moment(committed)
	return kindBegin, position, nil
}

func commit(c *cursor) (kind, lsn, error) {
	c.byte() // flags, unused
	c.lsn()  // of the commit record; the confirmed flush goes by the end
	end := c.lsn()
	c.take(8) // the time of the commit
	if c.short || end == 0 {
		return kindNone, 0, fmt.Errorf("%w: commit", errMalformed)
	}
	return kindCommit, end, nil
}

func (d *decoder) relation(c *cursor) (kind, lsn, error) {
	id, ours := readRelation(c, d.schema)
	if c.short {
		return kindNone, 0, fmt.Errorf("%w: relation", errMalformed)
	}
	d.relations[id] = ours
	d.latest, d.current = id, ours
	return kindNone, 0, nil
}

func (d *decoder) insert(c *cursor, row *outbox.Row) (kind, lsn, error) {
	table, err := d.table(c.uint32())
	if err != nil || table == nil {
		return kindNone, 0, err
	}
	if table.missing != "" {
		return kindNone, 0, d.columnError(table.missing, "is missing")
	}
	if c.byte() != 'N' || int(c.uint16()) != len(table.columns) {
		return kindNone, 0, fmt.Errorf("%w: insert", errMalformed)
	}
	*row = outbox.Row{XID: d.xid, CommittedAt: d.committed}
	var text textColumns
	for _, column := range table.columns {
		if err := d.readColumn(c, column, row, &text); err != nil {
			return kindNone, 0, err
		}
	}
	if c.short {
		return kindNone, 0, fmt.Errorf("%w: insert", errMalformed)
	}
	text.fill(row, c.data)
	return kindInsert, 0, nil
}

// table finds the relation of a row; nil if the table is not ours.
func (d *decoder) table(id uint32) (*relation, error) {
	if id == d.latest && d.current != nil {
		return d.current, nil
	}
	found, announced := d.relations[id]
	if !announced {
		return nil, fmt.Errorf("%w: row of a table that was not announced", errMalformed)
	}
	d.latest, d.current = id, found
	return found, nil
}

// readColumn reads the next value of a row. The values of text columns are
// kept aside, as they are to become one string.
func (d *decoder) readColumn(c *cursor, column column, row *outbox.Row, text *textColumns) error {
	var value []byte
	switch format := c.byte(); format {
	case 't':
		value = c.value()
	case 'n', 'u': // null; unchanged, which an insert never has
		return d.readNull(column)
	default:
		return fmt.Errorf("%w: value of format %q", errMalformed, format)
	}
	if c.short {
		return fmt.Errorf("%w: insert", errMalformed)
	}
	var err error
	switch column {
	case columnKey, columnQueue, columnOrderingKey, columnPayload, columnHeaders:
		text[column] = span{c.at - len(value), c.at}
	case columnID:
		row.ID, err = strconv.ParseInt(string(value), 10, 64)
	case columnDelaySeconds:
		row.DelaySeconds, err = parseInt4(value)
	case columnPriority:
		row.Priority, err = parseInt4(value)
	case columnDeliverAt:
		var when era
		if row.DeliverAt, when = parseTimestamp(value); when == after {
			row.DeliverAt = latest
		}
	case columnCreatedAt:
		row.CreatedAt, _ = parseTimestamp(value)
	}
	if err != nil {
		return d.columnError(columnNames[column], "is not a whole number")
	}
	return nil
}

// readNull accepts a null everywhere but in the id, without which the outcome
// of the message could not be recorded.
func (d *decoder) readNull(column column) error {
	if column == columnID {
		return d.columnError(columnNames[column], "is null")
	}
	return nil
}

func (d *decoder) columnError(name, trouble string) error {
	return &ColumnError{Schema: d.schema, Table: tableName, Column: name, Trouble: trouble}
}

func parseInt4(value []byte) (pgtype.Int4, error) {
	n, err := strconv.ParseInt(string(value), 10, 32)
	return pgtype.Int4{Int32: int32(n), Valid: err == nil}, err
}

// textColumns says where in the message the values of the text columns are.
type textColumns [columnCount]span

type span struct{ from, to int }

// fill copies the values into one string, of which the row's fields are parts:
// one allocation for a row, whatever it holds.
func (t *textColumns) fill(row *outbox.Row, message []byte) {
	size := 0
	for _, s := range t {
		size += s.to - s.from
	}
	var all strings.Builder
	all.Grow(size)
	for _, s := range t {
		all.Write(message[s.from:s.to])
	}
	rest := all.String()
	cut := func(column column) string {
		n := t[column].to - t[column].from
		part := rest[:n]
		rest = rest[n:]
		return part
	}
	row.Key = cut(columnKey)
	row.Queue = cut(columnQueue)
	row.OrderingKey = cut(columnOrderingKey)
	row.Payload = cut(columnPayload)
	row.Headers = cut(columnHeaders)
}

// widen makes the 64-bit transaction id of a 32-bit one: of all ids that end in
// these 32 bits, the one nearest to newest, an id that the server gave out
// lately. The WAL of a slot never spans half of the 32-bit numbers. The result
// is 0, not known, if there is no such id.
func widen(xid uint32, newest uint64) uint64 {
	distance := int64(int32(xid - uint32(newest)))
	if distance < 0 && uint64(-distance) > newest {
		return 0
	}
	return newest + uint64(distance)
}
