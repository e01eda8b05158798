package explain

import (
	"fmt"
	"strconv"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/plural"
)

// attempts says how often the message was tried, and what that means for the limit
// at which it becomes a dead letter; empty if there is nothing to say.
func (r *Report) attempts() string {
	d, x := r.Deferred, r.DeadLetter
	switch {
	case x != nil:
		return operate.Tries(x.Attempts, x.Reason)
	case d == nil:
		return ""
	case d.Attempts == 0:
		return "none yet"
	}
	text, limit := strconv.Itoa(d.Attempts), ""
	if d.MaxAttempts > 0 {
		limit = fmt.Sprintf(" of %d", d.MaxAttempts)
	}
	switch {
	case d.Charged >= d.Attempts:
		return text + plural.Agree(d.Attempts, ", which counts", ", which all count") + " towards the limit" + limit
	case d.Reason == "redriven":
		return text + "; none counts towards the limit" + limit + ", because a redrive starts the count anew"
	case d.Charged == 0:
		return text + "; none counts towards the limit" + limit + ", because " + counting
	}
	return text + "; " + plural.Of(d.Charged, "counts", "count") + " towards the limit" + limit + ", because " + counting
}

// counting is the rule of the router's settle.
const counting = "a failure counts only if others got through to the queue since the attempt before it, and a redrive starts the count anew"
