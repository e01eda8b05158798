package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLoad_PollModeSharesWhatTheWALHas(t *testing.T) {
	t.Parallel()
	c := load(t, map[string]string{
		"RELAY_MODE": "poll", "RELAY_SCHEMA": "events", "RELAY_SLOT": "mine", "RELAY_CONNECT_TIMEOUT": "3s", "RELAY_STANDBY_INTERVAL": "1s",
	})
	if !c.Polls() || !c.Relay.Polls {
		t.Error("the relay does not poll")
	}
	p := c.Poll
	if p.Schema != "events" || p.Slot != "mine" || p.ConnectTimeout != c.CDC.ConnectTimeout || p.StandbyInterval != c.CDC.StandbyInterval ||
		p.RetryMin != c.CDC.RetryMin || p.RetryMax != c.CDC.RetryMax || p.OperatorRetry != c.CDC.OperatorRetry || p.OperatorRetry == 0 {
		t.Errorf("got %+v", p)
	}
	if load(t, nil).Polls() {
		t.Error("the relay polls unasked")
	}
}

func TestLoad_PollModeProblems(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		changes map[string]string
		want    []string
	}{
		{map[string]string{"RELAY_MODE": "sql"}, []string{`RELAY_MODE is "sql": want "wal" or "poll"`}},
		{
			map[string]string{"RELAY_MODE": "poll", "RELAY_TRUST_WINDOW": "12s", "RELAY_POLL_LEASE_TIMEOUT": "11s"},
			[]string{"RELAY_TRUST_WINDOW is 12s: want less than RELAY_POLL_LEASE_TIMEOUT (11s)"},
		},
		{
			map[string]string{"RELAY_POLL_INTERVAL": "0s", "RELAY_POLL_LEASE_TIMEOUT": "1s", "RELAY_POLL_PATIENCE": "0s"},
			[]string{
				"RELAY_POLL_INTERVAL is 0s: want at least 1ms",
				"RELAY_POLL_LEASE_TIMEOUT is 1s: want at least 8s",
				"RELAY_POLL_PATIENCE is 0s: want at least 100ms",
			},
		},
	} {
		if diff := cmp.Diff(test.want, problems(t, test.changes)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", test.changes, diff)
		}
	}
}
