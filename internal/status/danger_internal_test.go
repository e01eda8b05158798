package status

import (
	"math"
	"testing"
)

func TestSlot_Danger(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	slot := func(retained, unconfirmed int64, change func(*Slot)) *Slot {
		s := &Slot{Name: "ours", Active: true, WALStatus: "extended", RetainedBytes: &retained, UnconfirmedBytes: &unconfirmed, LimitBytes: new(int64(512 * mib))}
		change(s)
		return s
	}
	asIs := func(*Slot) {}
	for name, test := range map[string]struct {
		slot       *Slot
		left       *float64
		text, hint string
	}{
		"half": {slot(256*mib, mib, asIs), new(60.0), "", ""},
		"a transaction": {
			slot(354*mib, 15<<10, asIs), new(109.0),
			"slot ours keeps 354.0 MiB of WAL, and is lost beyond 512.0 MiB, in 1.8 min at this speed; the relay has confirmed all but 15.0 KiB",
			"end the transaction that keeps it: outbox-relay doctor names it (D13)",
		},
		"the relay": {
			slot(354*mib, 353*mib, asIs), new(math.Inf(1)),
			"slot ours keeps 354.0 MiB of WAL, and is lost beyond 512.0 MiB", "see what the relay waits for: outbox-relay status",
		},
		"nobody": {
			slot(354*mib, mib, func(s *Slot) { s.Active = false }), nil,
			"slot ours keeps 354.0 MiB of WAL, and is lost beyond 512.0 MiB", "start a relay: nobody reads the slot",
		},
		"no limit":      {slot(5<<30, mib, func(s *Slot) { s.LimitBytes = nil }), nil, "", ""},
		"no limit, and": {slot(6<<30, 6<<30, func(s *Slot) { s.LimitBytes = nil }), nil, "slot ours keeps 6.0 GiB of WAL, without a limit", "see what the relay waits for: outbox-relay status"},
		"unreserved": {
			slot(0, 0, func(s *Slot) { s.WALStatus, s.RetainedBytes = "unreserved", nil }), nil,
			"slot ours will be lost at the next checkpoint of the server", "see what the relay waits for: outbox-relay status",
		},
		"lost":    {slot(0, 0, func(s *Slot) { s.WALStatus, s.Active = "lost", false }), nil, "slot ours is lost", "start a relay: nobody reads the slot"},
		"unknown": {slot(0, 0, func(s *Slot) { s.RetainedBytes = nil }), nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, hint := test.slot.Danger(test.left)
			if text != test.text || hint != test.hint {
				t.Errorf("is %q, %q; want %q, %q", text, hint, test.text, test.hint)
			}
		})
	}
}
