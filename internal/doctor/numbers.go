package doctor

import (
	"context"
	"fmt"
)

// numbers looks whether new messages get numbers that have outcomes already, as
// after TRUNCATE ... RESTART IDENTITY, or in a table that was swapped for another.
// The relay may take them for messages that it has dealt with.
func numbers(ctx context.Context, p *patient) (finding, error) {
	var sequence string // quoted, where it has to be
	var readable bool
	var last, highest int64
	err := p.conn.QueryRow(ctx, p.in(`
		select coalesce(s.name, ''), coalesce(has_sequence_privilege(s.name, 'select'), false), greatest(0,
			(select max(message_id) from outbox.dispatched), (select max(message_id) from outbox.dead_letters),
			(select max(message_id) from outbox.deferred), (select max(message_id) from outbox.withdrawn))
		from (select pg_get_serial_sequence($1, 'id') as name) s`), p.table("messages")).Scan(&sequence, &readable, &highest)
	switch {
	case err != nil:
		return finding{}, err
	case sequence == "":
		return skip("the numbers of " + p.table("messages") + " come from no sequence of its own"), nil
	case !readable:
		return skip("needs select on " + sequence + "; see D28"), nil
	}
	// A sequence that was set may give its value out next, or the one after it.
	if err := p.conn.QueryRow(ctx, `select last_value - (not is_called)::int from `+sequence).Scan(&last); err != nil {
		return finding{}, err
	}
	if last >= highest {
		return pass(fmt.Sprintf("the last one is %d", last)), nil
	}
	return finding{
		status: Fail, observed: fmt.Sprintf("the last one is %d, outcomes reach up to %d", last, highest),
		message: fmt.Sprintf("numbers of messages begin again: up to %d there are outcomes of earlier messages, and the relay may take new ones for these",
			highest),
		remedy: "as the owner of the tables, while no relay runs: it finds the messages that it took for others at its next start",
		sql: script(
			fmt.Sprintf("select setval(%s, %d)", literal(sequence), highest),
			p.in("delete from outbox.dispatched d using outbox.messages m where m.id = d.message_id and d.dispatched_at < m.created_at"),
			p.in("delete from outbox.dead_letters d using outbox.messages m where m.id = d.message_id and d.died_at < m.created_at"),
			p.in("delete from outbox.withdrawn d using outbox.messages m where m.id = d.message_id and d.withdrawn_at < m.created_at"),
		),
	}, nil
}
