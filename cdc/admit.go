package cdc

import (
	"context"
	"fmt"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/hint"
	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// BeforeTake sets what is asked about a server before anything is made or taken
// there: whether the stream of this cluster, on this timeline, may be taken at
// all. After an error with a hint the server is held: Open waits for a person and
// asks again every few seconds. It is for the time before the first Open.
func (s *Source) BeforeTake(allow func(ctx context.Context, system string, timeline int32) error) {
	s.allow = allow
}

// holdInterval is how often a server that is held is looked at again: an
// operator who let it go wants to see that it went.
const holdInterval = 2 * time.Second

// admitTimeout bounds the question, which may have to connect and has its own
// limits for that.
const admitTimeout = 15 * time.Second

// refusal says that the server may not be used.
type refusal struct{ err error }

func (e *refusal) Error() string { return e.err.Error() }

func (e *refusal) Unwrap() error { return e.err }

// admit asks whether the stream of the server may be taken.
func (s *Source) admit(ctx context.Context, here identity) error {
	if s.allow == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, admitTimeout)
	defer cancel()
	err := s.allow(ctx, here.system, here.timeline)
	switch {
	case err == nil:
		return nil
	case hint.Of(err) != "":
		return &refusal{err}
	case pgtext.SQLState(err) == codePrivilege:
		return &OperatorError{
			kind: ErrPrivilege, err: err, text: "ask for the server",
			hint: "`outbox-relay grants print` has the rights of the relay's role",
		}
	}
	return fmt.Errorf("ask for the server: %w", err)
}
