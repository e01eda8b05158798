package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// What messages are wrapped in, and how that changes (turn.go). A key must keep its bytes, also when an operator
// changes the envelope of a queue, or somebody the relay's settings, while
// requests are on their way that nobody has the answer of. So a change holds from
// a message number on. It is the first one that no relay can have sent, and it is
// durable in the table envelopes before anything is sent by it. The number is in
// the row: the envelope of a message is the same for every relay, at every
// attempt, from the WAL and from the table.
//
// While a relay runs that number is the next one that the server will give out,
// read when sending to the queue has stopped for a moment: a request in flight is
// for a lower one. When a session begins it is the one which the last session
// wrote down when it had ended its last request; after a crash nobody knows that,
// and it is the next one.

// CloudEvents is the name of the envelope that makes a CloudEvent of a message.
const CloudEvents = "cloudevents"

// noEnvelope is the name in the tables of sending payloads as they are.
const noEnvelope = "none"

// wrapping is the envelope of the messages of a queue from a number on.
type wrapping struct {
	first    int64
	envelope *outbox.Envelope // nil: none
}

// wrappings are those of a queue, by their numbers.
type wrappings []wrapping

// of is the envelope of a message.
func (w wrappings) of(id int64) *outbox.Envelope {
	n, found := slices.BinarySearchFunc(w, id, func(one wrapping, id int64) int { return cmp.Compare(one.first, id) })
	switch {
	case found:
		return w[n].envelope
	case n == 0:
		return nil
	}
	return w[n-1].envelope
}

// last is the envelope of messages to come.
func (w wrappings) last() *outbox.Envelope {
	if len(w) == 0 {
		return nil
	}
	return w[len(w)-1].envelope
}

func sameEnvelope(a, b *outbox.Envelope) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func (w wrappings) equal(other wrappings) bool {
	return slices.EqualFunc(w, other, func(a, b wrapping) bool {
		return a.first == b.first && sameEnvelope(a.envelope, b.envelope)
	})
}

// Only queues that have an envelope or had one: mostly no row.
const sqlEnvelopes = `
select coalesce(q.queue, e.queue), coalesce(q.envelope, 'none'), current_database(),
	e.numbers, e.envelopes, e.sources, e.types
from outbox.queues q full join (
	select queue, array_agg(first_message order by first_message) as numbers, array_agg(envelope order by first_message) as envelopes,
		array_agg(coalesce(source, '') order by first_message) as sources, array_agg(coalesce(type, '') order by first_message) as types
	from outbox.envelopes group by queue
) e on e.queue = q.queue
where q.envelope <> 'none' or e.queue is not null`

// envelopes adds to the settings of the queues what their messages are wrapped
// in, and what operators want.
func (s *store) envelopes(ctx context.Context, conn *pgx.Conn, wanted outbox.Envelope, all map[string]Settings) error {
	rows, err := conn.Query(ctx, s.in(sqlEnvelopes))
	if err != nil {
		return err
	}
	var queue, envelope, database string
	var numbers []int64
	var envelopes, sources, types []string
	_, err = pgx.ForEachRow(rows, []any{&queue, &envelope, &database, &numbers, &envelopes, &sources, &types}, func() error {
		one := all[queue]
		one.wrappings = make(wrappings, len(numbers))
		for i := range numbers {
			one.wrappings[i] = wrapping{numbers[i], newEnvelope(envelopes[i], sources[i], types[i])}
		}
		if wanted.Source == "" {
			wanted.Source = "/outbox-relay/" + url.PathEscape(database)
		}
		one.Envelope = newEnvelope(envelope, wanted.Source, wanted.Type)
		all[queue] = one
		return nil
	})
	return err
}

func newEnvelope(name, source, eventType string) *outbox.Envelope {
	if name == noEnvelope {
		return nil
	}
	return &outbox.Envelope{Name: name, Source: source, Type: eventType}
}

func (s *store) in(sql string) string {
	return strings.ReplaceAll(sql, "outbox.", pgx.Identifier{s.schema}.Sanitize()+".")
}

// envelope is what the relay's settings say about envelopes.
func (c *Config) envelope() outbox.Envelope {
	return outbox.Envelope{Source: c.CloudEventsSource, Type: c.CloudEventsType}
}

// validateEnvelope reports what could be no attribute of a CloudEvent.
func (c *Config) validateEnvelope() error {
	var errs []error
	if c.CloudEventsSource != "" && !isReference(c.CloudEventsSource) {
		errs = append(errs, fmt.Errorf("CLOUDEVENTS_SOURCE is %q, want a URI or the path of one", c.CloudEventsSource))
	}
	if c.CloudEventsType == "" || !isPrintable(c.CloudEventsType) {
		errs = append(errs, fmt.Errorf("CLOUDEVENTS_TYPE is %q, want some printable text", c.CloudEventsType))
	}
	return errors.Join(errs...)
}

// isReference reports whether s can be a URI or the path of one.
func isReference(s string) bool {
	_, err := url.Parse(s)
	return err == nil && !strings.ContainsAny(s, "\"<>\\^`{|}") &&
		!strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func isPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
