package doctor

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/relay/poll"
)

// readsTable makes the checks that the relay makes itself before it polls.
func readsTable(ctx context.Context, p *patient) (finding, error) {
	source := poll.New(*p.cfg.Poll, p.cfg.Database, p.cfg.Replication, zap.NewNop())
	err := source.Examine(ctx)
	operator, ok := errors.AsType[*poll.OperatorError](err)
	switch {
	case err == nil:
		return pass("the table can be polled"), nil
	case !ok:
		return finding{}, err
	}
	return finding{
		status: Fail, observed: oneLine(err),
		message: "the relay cannot poll the table: " + oneLine(err),
		remedy:  operator.Hint(),
	}, nil
}

// slotOfBefore looks for a slot that was left when the relay was set to polling.
func slotOfBefore(ctx context.Context, p *patient) (finding, error) {
	s, err := p.readSlot(ctx)
	switch {
	case err != nil:
		return finding{}, err
	case s == nil:
		return pass("none"), nil
	case s.active:
		return finding{
			status: Warn, observed: "in use",
			message: "a relay that reads the WAL holds slot " + ident(p.cfg.Slot) + ": one that polls waits until it has gone",
			remedy:  "run all relays of one outbox in one mode",
		}, nil
	}
	return finding{
		status: Warn, observed: "exists, not in use",
		message: "slot " + ident(p.cfg.Slot) + " keeps WAL that nobody reads while the relay polls: the disk can fill up",
		remedy:  "drop it, if poll mode is to stay; a relay that reads the WAL makes a new one and takes what it cannot show from the table",
		sql:     script("select pg_drop_replication_slot(" + literal(p.cfg.Slot) + ")"),
	}, nil
}
