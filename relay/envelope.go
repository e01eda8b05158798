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
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// What messages are wrapped in. A key must keep its bytes, also when an operator
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

// Two rows a queue, mostly none.
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

// turns reports whether messages to come must have another envelope than those
// before them. Until that is on record nothing is sent to the queue.
func (s *Settings) turns() bool { return !sameEnvelope(s.Envelope, s.wrappings.last()) }

// sqlNext is the number of the next message. Where the sequence may not be read
// (that of a table which took the place of the first one may lack its grants) the
// tables have to do.
const sqlNext = `1 + greatest(
	(select pg_sequence_last_value(q) from pg_get_serial_sequence('outbox.messages', 'id') g, to_regclass(g) q
		where has_sequence_privilege(q, 'select')),
	(select max(id) from outbox.messages), (` + sqlHorizon + `))`

// Under our epoch: another relay that takes the slot waits for the end of this
// statement. Numbers above the next one are from before they began again.
const sqlTurn = `
with ours as materialized (
	select from outbox.relays where slot = $1 and epoch = $2 for share
), turn as materialized (
	select coalesce($3::bigint, ` + sqlNext + `) as number from ours
), undone as (
	delete from outbox.envelopes e using turn where e.queue = any ($4::text[]) and e.first_message > turn.number
)
insert into outbox.envelopes (queue, first_message, envelope, source, type)
select t.queue, turn.number, t.envelope, t.source, t.type
from turn, unnest($4::text[], $5::text[], $6::text[], $7::text[]) as t (queue, envelope, source, type)
on conflict (queue, first_message) do update
	set envelope = excluded.envelope, source = excluded.source, type = excluded.type, changed_at = now()`

// turn puts on record that messages have another envelope from a number on: from
// unsent on, or if that is nil, from the next one on.
func (s *store) turn(ctx context.Context, epoch int64, unsent *int64, settings map[string]Settings) error {
	var queues, envelopes []string
	var sources, types []*string
	for queue, one := range settings {
		if !one.turns() {
			continue
		}
		to := outbox.Envelope{Name: noEnvelope}
		if one.Envelope != nil {
			to = *one.Envelope
		}
		queues, envelopes = append(queues, queue), append(envelopes, to.Name)
		sources, types = append(sources, orNull(to.Source)), append(types, orNull(to.Type))
	}
	if len(queues) == 0 {
		return nil
	}
	return s.with(ctx, func(conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, s.in(sqlTurn), s.slot, epoch, unsent, queues, envelopes, sources, types)
		switch {
		case err != nil:
			return fmt.Errorf("change envelopes: %w", err)
		case tag.RowsAffected() == 0:
			return ErrEpochLost
		}
		return nil
	})
}

// What the last sessions of all slots wrote down, until ours has sent something.
const sqlTakeUnsent = `
with noted as materialized (
	select case when count(*) = count(unsent_from) then max(unsent_from) end as unsent from outbox.relays
), taken as (
	update outbox.relays set unsent_from = null where slot = $1 and epoch = $2 and unsent_from is not null
)
select unsent from noted`

// takeUnsent returns the first number that no relay has sent, nil if nobody knows.
func (s *store) takeUnsent(ctx context.Context, epoch int64) (unsent *int64, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, s.in(sqlTakeUnsent), s.slot, epoch).Scan(&unsent)
	})
	return unsent, err
}

const sqlNoteUnsent = `
update outbox.relays set unsent_from = ` + sqlNext + ` where slot = $1 and epoch = $2`

// noteUnsent writes down where the messages begin that this session has not sent.
// It must have ended its last request.
func (s *store) noteUnsent(ctx context.Context, epoch int64) error {
	return s.with(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, s.in(sqlNoteUnsent), s.slot, epoch)
		return err
	})
}

func (s *store) in(sql string) string {
	return strings.ReplaceAll(sql, "outbox.", pgx.Identifier{s.schema}.Sanitize()+".")
}

// firstSettings reads the settings for the beginning of a session, and makes the
// changes of envelopes that operators have asked for meanwhile.
func (s *session) firstSettings(ctx context.Context) (map[string]Settings, error) {
	for {
		settings, err := s.relay.reading.settings(ctx, s.relay.cfg.envelope())
		if err != nil {
			return nil, err
		}
		turned, err := s.turnEnvelopes(ctx, settings, s.unsent)
		if err != nil || !turned {
			return settings, err
		}
	}
}

// turnEnvelopes makes the changes of envelopes that operators have asked for in
// settings, while nothing is sent to the queues in question. It reports whether
// there were any: then the settings are others now.
func (s *session) turnEnvelopes(ctx context.Context, settings map[string]Settings, unsent *int64) (turned bool, err error) {
	if !anyTurns(settings) {
		return false, nil
	}
	if err := s.relay.writing.turn(ctx, s.writer.epoch, unsent, settings); err != nil {
		return false, err
	}
	for queue, one := range settings {
		if one.turns() {
			s.log.Info("envelope of a queue changed", zap.String(keyQueue, queue), zap.Any("envelope", one.Envelope))
		}
	}
	return true, nil
}

func anyTurns(settings map[string]Settings) bool {
	for _, one := range settings {
		if one.turns() {
			return true
		}
	}
	return false
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
