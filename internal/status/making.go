package status

import (
	"context"
	"fmt"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/blocker"
	"github.com/outbox-relay/outbox-relay/internal/terminal"
)

// Making is a slot that is there by name only: it is being made, which waits for
// every transaction of the server that has written something.
type Making struct {
	// PID is the session that makes it.
	PID int `json:"pid"`
	// Since is when that began; nil if the role may not see it.
	Since *time.Time `json:"since"`
	// Awaits is the transaction for which it waits; nil if that has just ended.
	Awaits *blocker.Transaction `json:"awaits"`
	// Hint says who ends it, and how.
	Hint string `json:"hint"`
}

// sqlIsMade tells a slot s that is being made: its maker has it, and it has no place
// yet from which it could be read.
const sqlIsMade = `s.active and s.slot_type = 'logical' and s.confirmed_flush_lsn is null`

func readMaking(ctx context.Context, q blocker.Querier, maker *int, since *time.Time) (*Making, error) {
	m := &Making{Since: since}
	if maker != nil {
		m.PID = *maker
	}
	var err error
	if m.Awaits, err = blocker.Of(ctx, q, m.PID); err != nil {
		return nil, err
	}
	m.Hint = m.Awaits.Hint()
	return m, nil
}

// String says that nothing can be read yet, and why.
func (m *Making) String() string {
	text := "no relay is streaming: its slot is being made"
	if m.Since != nil {
		text += " since " + moment(*m.Since)
	}
	text += " (process " + fmt.Sprint(m.PID) + ")"
	if m.Awaits == nil {
		return text
	}
	return text + " and waits for " + m.awaits()
}

// awaits is the transaction, and since when it is open.
func (m *Making) awaits() string {
	text := m.Awaits.String()
	if open := m.Awaits.Open(); open != "" {
		text += ", " + open
	}
	return terminal.Line(text)
}

// Silent is how long the server hears nothing from a process that reads before that
// is worth a word. A relay that lives says something every few seconds.
const Silent = 30 * time.Second

// silence says that the server has not heard from the process that has the slot for
// long, and what to do; empty if it has, or does not tell.
func silence(heard *float64, pid *int) string {
	if heard == nil || pid == nil || *heard < Silent.Seconds() {
		return ""
	}
	return fmt.Sprintf(", but the server has heard nothing from it for %s: if that relay hangs or is gone, end its session, "+
		"as the relay's role or an administrator: select pg_terminate_backend(%d)", age(*heard), *pid)
}

// rows say it in the table; none without a slot that is being made.
func (m *Making) rows() [][2]string {
	if m == nil || m.Awaits == nil {
		return nil
	}
	return [][2]string{{"waits for", m.awaits()}, {"", terminal.Line(m.Hint)}}
}
