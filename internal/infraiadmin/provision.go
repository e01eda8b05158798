package infraiadmin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
)

// Provision does what a plan says, in its order, and notes in the plan what it
// has created. If a queue is there with other settings it does nothing at all.
// A plan that was done in part is no harm: the next one finds what is there.
func (c *Client) Provision(ctx context.Context, plan []Step) error {
	if err := Differences(plan); err != nil {
		return err
	}
	for i := range plan {
		if plan[i].Action != Create {
			continue
		}
		if err := c.create(ctx, &plan[i]); err != nil {
			return err
		}
	}
	return nil
}

// create creates a queue and looks whether it is as it should be. Somebody else
// may have created it meanwhile, which is as good.
func (c *Client) create(ctx context.Context, s *Step) error {
	// The key is a new one for every run. One that follows from the name would
	// make the queue repeat its answer of yesterday for a queue that was deleted
	// since, and create nothing.
	key := "provision:" + rand.Text()
	_, err := c.data(ctx, request{
		act: "create queue " + s.Queue, method: http.MethodPost, path: createPath, key: key,
		body: createBody(s.Queue, s.Settings, key),
	})
	var refused *Error
	switch {
	case err == nil:
		s.Created = true
	case !errors.As(err, &refused) || refused.Problem != Conflict:
		return err
	}
	return c.verify(ctx, s, err)
}

// verify looks at a queue that should be there now. conflict is what its
// creation was told, if not that it was done.
func (c *Client) verify(ctx context.Context, s *Step, conflict error) error {
	if err := c.look(ctx, s); err != nil {
		return err
	}
	switch s.Action {
	case Create:
		s.Created = false
		if conflict != nil {
			return conflict
		}
		return fmt.Errorf("create queue %s: the queue said yes, and does not have it", s.Queue)
	case Differ:
		return Differences([]Step{*s})
	case Keep:
	}
	return nil
}
