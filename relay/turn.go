package relay

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/outbox"
)

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
