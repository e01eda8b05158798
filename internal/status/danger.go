package status

import (
	"fmt"
	"math"
	"time"
)

// muchWithoutLimit is what a slot keeps of a server without a limit before
// somebody should look: a disk has an end, too.
const muchWithoutLimit = 5 << 30

// Danger says that the slot keeps so much WAL that somebody has to look, and who
// can tell what for: empty while it does not. Left is how long what may still be
// written lasts at the present speed, in seconds; nil if that is not known.
func (s *Slot) Danger(left *float64) (text, hint string) {
	switch {
	case s.WALStatus == "lost":
		text = fmt.Sprintf("slot %s is lost", s.Name)
	case s.WALStatus == "unreserved":
		text = fmt.Sprintf("slot %s will be lost at the next checkpoint of the server", s.Name)
	case s.RetainedBytes == nil:
		return "", ""
	case s.LimitBytes != nil && *s.RetainedBytes > *s.LimitBytes/2:
		text = fmt.Sprintf("slot %s keeps %s of WAL, and is lost beyond %s%s", s.Name, size(*s.RetainedBytes), size(*s.LimitBytes), lasting(left))
	case s.LimitBytes == nil && *s.RetainedBytes > muchWithoutLimit:
		text = fmt.Sprintf("slot %s keeps %s of WAL, without a limit", s.Name, size(*s.RetainedBytes))
	default:
		return "", ""
	}
	switch {
	case !s.Active:
		return text, "start a relay: nobody reads the slot"
	case s.UnconfirmedBytes != nil && s.RetainedBytes != nil && *s.UnconfirmedBytes <= *s.RetainedBytes/2:
		return text + "; the relay has confirmed all but " + size(*s.UnconfirmedBytes),
			"end the transaction that keeps it: outbox-relay doctor names it (D13)"
	}
	return text, "see what the relay waits for: outbox-relay status"
}

// lasting is how long it is until then.
func lasting(left *float64) string {
	if left == nil || math.IsInf(*left, 1) || *left > (48*time.Hour).Seconds() {
		return ""
	}
	return ", in " + age(*left) + " at this speed"
}
