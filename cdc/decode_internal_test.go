package cdc

import (
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// message writes a message of the output plugin.
type message []byte

func (m message) u8(n byte) message    { return append(m, n) }
func (m message) u16(n uint16) message { return binary.BigEndian.AppendUint16(m, n) }
func (m message) u32(n uint32) message { return binary.BigEndian.AppendUint32(m, n) }
func (m message) u64(n uint64) message { return binary.BigEndian.AppendUint64(m, n) }
func (m message) text(s string) message {
	return append(append(m, s...), 0)
}

func beginMessage(commit lsn, xid uint32) message {
	return message{'B'}.u64(uint64(commit)).u64(0).u32(xid)
}

func commitMessage(commit, end lsn) message {
	return message{'C'}.u8(0).u64(uint64(commit)).u64(uint64(end)).u64(0)
}

func relationMessage(id uint32, schema, table string, columns ...string) message {
	m := message{'R'}.u32(id).text(schema).text(table).u8('d').u16(uint16(len(columns)))
	for _, column := range columns {
		m = m.u8(0).text(column).u32(25).u32(0xffffffff)
	}
	return m
}

// null stands for a null value in insertMessage.
const null = "\x00null"

func insertMessage(id uint32, values ...string) message {
	m := message{'I'}.u32(id).u8('N').u16(uint16(len(values)))
	for _, value := range values {
		if value == null {
			m = m.u8('n')
			continue
		}
		m = append(m.u8('t').u32(uint32(len(value))), value...)
	}
	return m
}

// feed decodes messages and returns the rows. It stops at the first error.
func feed(d *decoder, messages ...message) ([]outbox.Row, error) {
	var rows []outbox.Row
	for _, m := range messages {
		var row outbox.Row
		kind, _, err := d.decode(m, 1_000, &row)
		if err != nil {
			return rows, err
		}
		if kind == kindInsert {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// allColumns are the columns of the table in their order.
var allColumns = []string{"id", "key", "queue", "ordering_key", "payload", "headers", "delay_seconds", "priority", "deliver_at", "created_at"}

func TestDecoder_ReadsARow(t *testing.T) {
	t.Parallel()
	got, err := feed(newDecoder("outbox"),
		relationMessage(7, "outbox", "messages", allColumns...),
		beginMessage(100, 999),
		insertMessage(7, "42", "k-1", "mails", "customer-7", `{"a": 1.10}`, `{"h": "v"}`, "30", "5",
			"2026-02-03 04:05:06.789+00", "2026-01-01 00:00:00+00"),
		commitMessage(100, 120))
	if err != nil {
		t.Fatal(err)
	}
	want := []outbox.Row{{
		ID: 42, XID: 999, Key: "k-1", Queue: "mails", OrderingKey: "customer-7", Payload: `{"a": 1.10}`, Headers: `{"h": "v"}`,
		DelaySeconds: pgtype.Int4{Int32: 30, Valid: true}, Priority: pgtype.Int4{Int32: 5, Valid: true},
		DeliverAt: time.Date(2026, 2, 3, 4, 5, 6, 789e6, time.UTC), CreatedAt: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecoder_ARowKnowsWhenItWasCommitted(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 2, 3, 4, 5, 6, 789_012_000, time.UTC)
	got, err := feed(newDecoder("outbox"),
		relationMessage(7, "outbox", "messages", "id", "key", "queue", "ordering_key", "payload"),
		message{'B'}.u64(100).u64(uint64(at.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).Microseconds())).u32(9),
		insertMessage(7, "1", "k", "q", null, "{}"))
	if err != nil {
		t.Fatal(err)
	}
	want := []outbox.Row{{ID: 1, XID: 9, Key: "k", Queue: "q", Payload: "{}", CommittedAt: at}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// APP-07: nulls are empty, and never become a made-up value.
func TestDecoder_NullsAreEmpty(t *testing.T) {
	t.Parallel()
	got, err := feed(newDecoder("outbox"),
		relationMessage(7, "outbox", "messages", allColumns...),
		beginMessage(100, 999),
		insertMessage(7, "42", null, null, null, null, null, null, null, null, null))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]outbox.Row{{ID: 42, XID: 999}}, got); diff != "" {
		t.Error(diff)
	}
}

// SCH-01: columns are found by name in the last Relation message, whatever
// their order; others are ignored, and those that may be missing are empty.
func TestDecoder_FindsColumnsByName(t *testing.T) {
	t.Parallel()
	got, err := feed(newDecoder("outbox"),
		relationMessage(7, "outbox", "messages", "id", "key", "queue", "ordering_key", "payload", "headers"),
		beginMessage(100, 1),
		insertMessage(7, "1", "a", "q", null, "{}", `{"x": "y"}`),
		relationMessage(7, "outbox", "messages", "tenant", "payload", "queue", "ordering_key", "note", "key", "id"),
		insertMessage(7, "x", `{"n": 2}`, "q", "o", `{"big": "column"}`, "b", "2"))
	if err != nil {
		t.Fatal(err)
	}
	want := []outbox.Row{
		{ID: 1, XID: 1, Key: "a", Queue: "q", Payload: "{}", Headers: `{"x": "y"}`},
		{ID: 2, XID: 1, Key: "b", Queue: "q", OrderingKey: "o", Payload: `{"n": 2}`},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// SCH-02: without a column that a promise hangs on, the stream stops before the
// first such row, and not at the announcement of the table.
func TestDecoder_StopsAtARowWithoutANeededColumn(t *testing.T) {
	t.Parallel()
	for _, missing := range []string{"id", "key", "queue", "ordering_key", "payload"} {
		t.Run(missing, func(t *testing.T) {
			t.Parallel()
			var left []string
			for _, column := range allColumns {
				if column != missing {
					left = append(left, column)
				}
			}
			d := newDecoder("outbox")
			if _, err := feed(d, relationMessage(7, "outbox", "messages", left...), message{'U'}.u32(7)); err != nil {
				t.Fatalf("before a row: %v", err)
			}
			_, err := feed(d, insertMessage(7, make([]string, len(left))...))
			var column *ColumnError
			if !errors.As(err, &column) || column.Column != missing || column.Table != "messages" || column.Schema != "outbox" {
				t.Errorf("error %v, want a ColumnError of %s", err, missing)
			}
		})
	}
}

func TestDecoder_RefusesValuesOfTheWrongType(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ column, value string }{
		"a text as id":              {"id", "one"},
		"no id":                     {"id", null},
		"a fraction as a delay":     {"delay_seconds", "1.5"},
		"a priority out of range":   {"priority", "99999999999"},
		"an empty delay":            {"delay_seconds", ""},
		"an id beyond 64 bits":      {"id", "9223372036854775808"},
		"a marker that is not ours": {"id", "SECRET-1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			values := []string{"1", "k", "q", "o", "{}"}
			columns := []string{"id", "key", "queue", "ordering_key", "payload"}
			if test.column == "id" {
				values[0] = test.value
			} else {
				columns, values = append(columns, test.column), append(values, test.value)
			}
			_, err := feed(newDecoder("outbox"), relationMessage(7, "outbox", "messages", columns...), insertMessage(7, values...))
			var column *ColumnError
			if !errors.As(err, &column) || column.Column != test.column {
				t.Fatalf("error %v, want a ColumnError of %s", err, test.column)
			}
			if test.value != "" && strings.Contains(err.Error(), test.value) {
				t.Errorf("the error %q quotes the value", err)
			}
		})
	}
}

func TestDecoder_IgnoresOtherTables(t *testing.T) {
	t.Parallel()
	got, err := feed(newDecoder("outbox"),
		relationMessage(1, "public", "messages", allColumns...),
		relationMessage(2, "outbox", "messages_1", "id"),
		relationMessage(3, "Outbox", "messages", "id"),
		insertMessage(1, "1"),
		insertMessage(2, "not a number"),
		insertMessage(3))
	if err != nil || len(got) != 0 {
		t.Errorf("got %v, %v; want nothing", got, err)
	}
}

// CDC-09: none of these ends the stream.
func TestDecoder_IgnoresWhatIsNotAnInsert(t *testing.T) {
	t.Parallel()
	for _, tag := range []byte("UDTYOM") {
		var row outbox.Row
		kind, _, err := newDecoder("outbox").decode([]byte{tag, 0xff}, 0, &row)
		if kind != kindIgnored || err != nil {
			t.Errorf("%c: %v, %v; want it ignored", tag, kind, err)
		}
	}
}

// SEC-04: malformed bytes are an error, never a panic.
func TestDecoder_RefusesMalformedMessages(t *testing.T) {
	t.Parallel()
	relation := relationMessage(7, "outbox", "messages", "id", "key", "queue", "ordering_key", "payload")
	row := []string{"1", "k", "q", "o", "{}"}
	tests := map[string][]message{
		"empty":                               {{}},
		"unknown type":                        {{'Z'}},
		"short begin":                         {message{'B'}.u64(1).u64(1)},
		"short commit":                        {message{'C'}.u8(0).u64(1)},
		"commit that ends nowhere":            {commitMessage(1, 0)},
		"table that was not announced":        {insertMessage(9, row...)},
		"relation without an end of its name": {message{'R'}.u32(7).u8('o')},
		"relation with 65535 columns":         {message{'R'}.u32(7).text("outbox").text("messages").u8('d').u16(65535)},
		"no tuple":                            {relation, message{'I'}.u32(7)},
		"old tuple":                           {relation, message{'I'}.u32(7).u8('K').u16(5)},
		"fewer values than columns":           {relation, insertMessage(7, row[:4]...)},
		"more values than columns":            {relation, insertMessage(7, append(row, "x")...)},
		"value of 2^31-1 bytes":               {relation, message{'I'}.u32(7).u8('N').u16(5).u8('t').u32(1<<31 - 1)},
		"value of -2 bytes":                   {relation, message{'I'}.u32(7).u8('N').u16(5).u8('t').u32(0xfffffffe)},
		"binary value":                        {relation, message{'I'}.u32(7).u8('N').u16(5).u8('b').u32(0)},
		"row that breaks off":                 {relation, insertMessage(7, row...)[:30]},
	}
	for name, messages := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := feed(newDecoder("outbox"), messages...); !errors.Is(err, errMalformed) {
				t.Errorf("error %v, want errMalformed", err)
			}
		})
	}
}

func TestDecoder_ARowDoesNotReferToTheMessage(t *testing.T) {
	t.Parallel()
	insert := insertMessage(7, "1", "key", "queue", "ordering", `{"payload": true}`)
	got, err := feed(newDecoder("outbox"), relationMessage(7, "outbox", "messages", "id", "key", "queue", "ordering_key", "payload"), insert)
	if err != nil {
		t.Fatal(err)
	}
	clear(insert)
	want := []outbox.Row{{ID: 1, Key: "key", Queue: "queue", OrderingKey: "ordering", Payload: `{"payload": true}`}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecoder_AllocatesOneStringForARow(t *testing.T) {
	d := newDecoder("outbox")
	if _, err := feed(d, relationMessage(7, "outbox", "messages", allColumns...), beginMessage(1, 1)); err != nil {
		t.Fatal(err)
	}
	insert := insertMessage(7, "42", "k-1", "mails", "customer-7", `{"a": 1.10}`, `{"h": "v"}`, "30", "5",
		"2026-02-03 04:05:06.789+00", "2026-01-01 00:00:00+00")
	var row outbox.Row
	allocs := testing.AllocsPerRun(1000, func() {
		if _, _, err := d.decode(insert, 0, &row); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 1 {
		t.Errorf("%v allocations for a row, want 1", allocs)
	}
}

func TestWiden(t *testing.T) {
	t.Parallel()
	const epoch = uint64(1) << 32
	tests := map[string]struct {
		xid    uint32
		newest uint64
		want   uint64
	}{
		"the newest itself":                {1000, 1000, 1000},
		"a little older":                   {990, 1000, 990},
		"a little newer":                   {1010, 1000, 1010},
		"in a later epoch":                 {990, 3*epoch + 1000, 3*epoch + 990},
		"before the last wraparound":       {0xffff_fff0, 3*epoch + 16, 3*epoch - 16},
		"after the next wraparound":        {5, 3*epoch - 5, 3*epoch + 5},
		"two billion older":                {1000, epoch + 2_000_001_000, epoch + 1000},
		"older than the first transaction": {0xffff_fff0, 16, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := widen(test.xid, test.newest); got != test.want {
				t.Errorf("widen(%d, %d) = %d, want %d", test.xid, test.newest, got, test.want)
			}
		})
	}
}

// SEC-04: whatever the bytes are, the decoder does not panic, and allocates not
// much more than the size of what it was given.
func FuzzDecoder(f *testing.F) {
	for _, recorded := range recordedStreams(f) {
		for _, m := range recorded.messages {
			f.Add([]byte(m), []byte(nil))
		}
	}
	f.Add([]byte(relationMessage(7, "outbox", "messages", allColumns...)), []byte(insertMessage(7, make([]string, 10)...)))
	f.Add([]byte(message{'R'}.u32(7).text("outbox").text("messages").u8('d').u16(65535)), []byte(insertMessage(7)))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		d := newDecoder("outbox")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for _, m := range [][]byte{first, second} {
			var row outbox.Row
			kind, _, err := d.decode(m, 1000, &row)
			if kind == kindInsert && (err != nil || row.Size() > len(m)) {
				t.Errorf("a row of %d bytes from %d, error %v", row.Size(), len(m), err)
			}
		}
		runtime.ReadMemStats(&after)
		// The fixed part is what the error texts, the map and the fuzzer's own
		// goroutines take.
		if got, most := after.TotalAlloc-before.TotalAlloc, uint64(64<<10+4*(len(first)+len(second))); got > most {
			t.Errorf("%d bytes allocated for messages of %d and %d bytes", got, len(first), len(second))
		}
	})
}
