package infraiadmin

import (
	"context"
	"fmt"
	"net/http"
	"regexp"

	"github.com/outbox-relay/outbox-relay/internal/capability"
)

const discoveryPath = "/v1/discovery"

var capabilityID = regexp.MustCompile(`^[a-z0-9_]+(\.[a-z0-9_]+)*$`)

// CheckCapability says what is wrong with the name of a capability.
func CheckCapability(id string) error {
	if len(id) > maxIdentifier || !capabilityID.MatchString(id) {
		return fmt.Errorf("%q is not the name of a capability: want one such as queue.publish", id)
	}
	return nil
}

// Capability asks what one call looks like. It needs no API key.
func (c *Client) Capability(ctx context.Context, id string) (*capability.Capability, error) {
	if err := CheckCapability(id); err != nil {
		return nil, err
	}
	return described(ctx, c, request{act: "discover " + id, path: discoveryPath + "/" + id}, capability.Parse)
}

// Index asks which calls there are. It needs no API key.
func (c *Client) Index(ctx context.Context) ([]capability.Capability, error) {
	return described(ctx, c, request{act: "discover", path: discoveryPath}, capability.ParseIndex)
}

// described asks discovery. Its answers have no envelope; one that has is opened.
func described[T any](ctx context.Context, c *Client, r request, parse func([]byte) (T, error)) (none T, err error) {
	r.method, r.open = http.MethodGet, true
	a, err := c.do(ctx, r)
	if err != nil {
		return none, err
	}
	e := open(a.body)
	if a.status/100 != 2 || e.said() && !*e.OK {
		return none, c.refusal(r, a, e)
	}
	body := a.body
	if e.said() {
		body = e.Data
	}
	parsed, err := parse(body)
	if err != nil {
		return none, c.unreadable(r, err.Error()+kindOf(a.header))
	}
	return parsed, nil
}
