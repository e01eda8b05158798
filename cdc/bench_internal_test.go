package cdc

import (
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// BenchmarkDecode is the cost of one row of about 400 bytes of text.
func BenchmarkDecode(b *testing.B) {
	d := newDecoder("outbox")
	if _, err := feed(d, relationMessage(7, "outbox", "messages", allColumns...), beginMessage(1, 1)); err != nil {
		b.Fatal(err)
	}
	insert := insertMessage(7, "42", "k-1", "mails", "customer-7", `{"filler": "`+strings.Repeat("x", 370)+`"}`, null, null, null,
		null, "2026-01-01 00:00:00.123456+00")
	b.SetBytes(int64(len(insert)))
	b.ReportAllocs()
	var row outbox.Row
	for b.Loop() {
		if _, _, err := d.decode(insert, 0, &row); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTracker is the bookkeeping of a transaction with one message, with a
// thousand others open.
func BenchmarkTracker(b *testing.B) {
	var t tracker
	step := func() {
		if err := t.begin(); err != nil {
			b.Fatal(err)
		}
		if err := t.message(); err != nil {
			b.Fatal(err)
		}
		if err := t.commit(lsn(t.next)); err != nil {
			b.Fatal(err)
		}
	}
	const open = 1000
	for range open {
		step()
	}
	b.ReportAllocs()
	for b.Loop() {
		step()
		if err := t.resolve(t.next - open - 1); err != nil {
			b.Fatal(err)
		}
	}
}
