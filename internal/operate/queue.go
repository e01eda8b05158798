package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/paused"
)

// Queue is a queue that has settings of its own or deferred messages.
type Queue struct {
	Queue  string `json:"queue"`
	Paused bool   `json:"paused"`
	paused.Note
	// Ordering is what is a lane: an ordering "key" of the queue, or the "queue".
	Ordering string `json:"ordering"`
	// MaxInFlight and MaxAttempts are nil where the relay's own settings hold,
	// RatePerSecond is nil without a bound.
	MaxInFlight   *int     `json:"max_in_flight"`
	RatePerSecond *float64 `json:"rate_per_second"`
	MaxAttempts   *int     `json:"max_attempts"`
	// OnDeadLetter is what a lane does when one of its messages becomes a dead
	// letter: "continue", or "hold" until a person decides.
	OnDeadLetter string `json:"on_dead_letter"`
	// Envelope is what messages to come are wrapped in: "none" or "cloudevents".
	Envelope string `json:"envelope"`
	// EnvelopeFrom is the id of the first message that has it, nil for a queue that
	// never had another one.
	EnvelopeFrom *int64 `json:"envelope_from"`
	// EnvelopePending says that no relay has seen the change to it yet.
	EnvelopePending bool `json:"envelope_pending"`
	// Configured says that the queue has a row in the table queues.
	Configured bool  `json:"configured"`
	Deferred   Count `json:"deferred"`
}

// The names of the queues in deferred are read by one index entry each.
var sqlQueueList = `
with recursive d as (
	(select queue from outbox.deferred order by queue limit 1)
	union all
	select (select n.queue from outbox.deferred n where n.queue > d.queue order by n.queue limit 1) from d where d.queue is not null
), e as (
	select distinct on (queue) queue, envelope, first_message from outbox.envelopes order by queue, first_message desc
), names as (
	select queue from d where queue is not null
	union
	select queue from outbox.queues
	union
	select queue from e where envelope <> 'none'
)
select n.queue, coalesce(q.paused, false), ` + paused.Columns("q") + `, coalesce(q.ordering, 'key'), q.max_in_flight, q.rate_per_second, q.max_attempts,
	coalesce(q.on_dead_letter, 'continue'), coalesce(q.envelope, 'none'),
	case when coalesce(e.envelope, 'none') = coalesce(q.envelope, 'none') then e.first_message end,
	coalesce(e.envelope, 'none') <> coalesce(q.envelope, 'none'), q.queue is not null,
	(select count(*) from (select 1 from outbox.deferred w where w.queue = n.queue limit $2::bigint) w)
from names n left join outbox.queues q on q.queue = n.queue
	left join e on e.queue = n.queue
where $1::text = '' or n.queue = $1::text
order by n.queue collate "C"`

// Queues returns all queues that are known here, by name.
func (o *Operator) Queues(ctx context.Context) ([]Queue, error) {
	return o.queues(ctx, "")
}

// Queue returns one queue. One that nothing is known about has the defaults.
func (o *Operator) Queue(ctx context.Context, name string) (*Queue, error) {
	found, err := o.queues(ctx, name)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return &Queue{Queue: name, Ordering: "key", OnDeadLetter: "continue", Envelope: "none"}, nil
	}
	return &found[0], nil
}

func (o *Operator) queues(ctx context.Context, name string) ([]Queue, error) {
	rows, err := o.conn.Query(ctx, o.in(sqlQueueList), name, Bound+1)
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (q Queue, err error) {
		var n int64
		err = row.Scan(&q.Queue, &q.Paused, &q.At, &q.By, &q.Reason, &q.Ordering, &q.MaxInFlight, &q.RatePerSecond, &q.MaxAttempts,
			&q.OnDeadLetter, &q.Envelope, &q.EnvelopeFrom, &q.EnvelopePending, &q.Configured, &n)
		q.Deferred = newCount(n)
		return q, err
	})
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	return found, nil
}

// Settings are changes of a queue's settings, by the names of the columns of
// the table queues. A nil gives the relay's own setting back.
type Settings map[string]any

// settable are the settings of a queue.
var settable = []string{"paused", "ordering", "max_in_flight", "rate_per_second", "max_attempts", "on_dead_letter", "envelope"}

// InvalidError says what is wrong with settings that were asked for.
type InvalidError struct{ text string }

func (e *InvalidError) Error() string { return e.text }

// ParseSettings reads settings written as name=value, and reports everything
// that is wrong with them at once.
func ParseSettings(args []string) (Settings, error) {
	settings, wrong := Settings{}, []string{}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		parsed, err := parseSetting(name, value)
		_, twice := settings[name]
		switch {
		case twice:
			wrong = append(wrong, name+" is given twice")
		case err != nil:
			wrong = append(wrong, err.Error())
		default:
			settings[name] = parsed
		}
	}
	if len(wrong) > 0 {
		return nil, &InvalidError{strings.Join(wrong, "\n")}
	}
	return settings, nil
}

func parseSetting(name, value string) (any, error) {
	switch {
	case !slices.Contains(settable, name):
		return nil, fmt.Errorf("unknown setting %q, want %s", name, strings.Join(settable, ", "))
	case name == "paused":
		if value == "true" || value == "false" {
			return value == "true", nil
		}
		return nil, fmt.Errorf("paused is %q, want true or false", value)
	case len(words[name]) > 0:
		return parseWord(name, value)
	case value == "default":
		return nil, nil
	case name == "rate_per_second":
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("%s is %q, want a number or default", name, value)
		}
		return n, nil
	}
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("%s is %q, want a whole number or default", name, value)
	}
	return n, nil
}

// words are the values of settings that are words, the default first.
var words = map[string][]string{
	"ordering":       {"key", "queue"},
	"on_dead_letter": {"continue", "hold"},
	"envelope":       {"none", "cloudevents"},
}

func parseWord(name, value string) (any, error) {
	switch {
	case value == "default":
		return words[name][0], nil
	case slices.Contains(words[name], value):
		return value, nil
	}
	return nil, fmt.Errorf("%s is %q, want %s", name, value, strings.Join(words[name], " or "))
}

// Set changes settings of one queue and leaves the others as they are. The
// table's own constraints decide what is valid.
func (o *Operator) Set(ctx context.Context, queue string, settings Settings) error {
	columns, values, changes := []string{"queue"}, []string{"$1"}, []string{}
	args := []any{queue}
	for _, name := range settable {
		value, ok := settings[name]
		if !ok {
			continue
		}
		args = append(args, value)
		columns = append(columns, name)
		values = append(values, fmt.Sprintf("$%d", len(args)))
		changes = append(changes, name+" = excluded."+name)
	}
	if len(changes) == 0 {
		return &InvalidError{"no setting is given"}
	}
	_, err := o.conn.Exec(ctx, o.in(fmt.Sprintf(`insert into outbox.queues (%s) values (%s) on conflict (queue) do update set %s`,
		strings.Join(columns, ", "), strings.Join(values, ", "), strings.Join(changes, ", "))), args...)
	if err != nil {
		return refused(fmt.Errorf("set queue %q: %w", queue, err))
	}
	return nil
}

// refused puts in words what a constraint of the table queues says.
func refused(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && broken[pgErr.ConstraintName] != "" {
		return &InvalidError{broken[pgErr.ConstraintName]}
	}
	return err
}

// broken says in words what the constraints of the table queues want.
var broken = map[string]string{
	"queues_queue_valid":            "the name of a queue has at most 63 characters: a-z, 0-9, _ and -, the first one a letter or digit",
	"queues_max_in_flight_positive": "max_in_flight must be at least 1; paused=true stops a queue",
	"queues_max_attempts_positive":  "max_attempts must be at least 1",
	"queues_paused_reason_valid":    "the reason of a pause is one line of at most 200 characters",

	"queues_rate_per_second_positive": "rate_per_second must be above 0 and finite; paused=true stops a queue",
}
