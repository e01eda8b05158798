package outbox

import "strings"

// Both statements take every column as text, which any driver can pass and the
// server casts. They need the unique index on key, and take no lock but those
// of their own rows and, for a key that another transaction has written, a wait
// for that transaction's end.
//
// One message does not go the way of many: arrays of one element made the whole
// call a quarter slower.
const (
	insertOne = `
insert into %s (key, queue, ordering_key, payload, headers, delay_seconds, priority, deliver_at)
values ($1::text, $2::text, $3::text, $4::text::jsonb, $5::text::jsonb,
        $6::text::integer, $7::text::integer, $8::text::timestamptz)
on conflict (key) do nothing
returning id, key`

	// The "order by" lets the identity column count in the order of the messages.
	insertMany = `
insert into %s (key, queue, ordering_key, payload, headers, delay_seconds, priority, deliver_at)
select m.key, m.queue, m.ordering_key, m.payload::jsonb, m.headers::jsonb,
       m.delay_seconds::integer, m.priority::integer, m.deliver_at::timestamptz
from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
     with ordinality as m (key, queue, ordering_key, payload, headers, delay_seconds, priority, deliver_at, nth)
order by m.nth
on conflict (key) do nothing
returning id, key`
)

// statement returns the statement that writes the records, and its arguments;
// array turns a column into what the driver takes as an array of text.
func (o *Outbox) statement(records []record, array func([]*string) any) (insert string, args []any) {
	args = make([]any, len(record{}))
	if len(records) == 1 {
		for i, text := range records[0] {
			args[i] = text
		}
		return o.insertOne, args
	}
	for i := range args {
		column := make([]*string, len(records))
		for row := range records {
			column[row] = records[row][i]
		}
		args[i] = array(column)
	}
	return o.insertMany, args
}

// arrayLiteral writes an array of text as SQL does.
func arrayLiteral(column []*string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	var b strings.Builder
	for i, text := range column {
		b.WriteByte("{,"[min(i, 1)])
		if text == nil {
			b.WriteString("null")
			continue
		}
		b.WriteByte('"')
		_, _ = escape.WriteString(&b, *text) // a Builder takes everything
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}
