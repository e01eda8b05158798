package relay_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/relay"
)

// Which servers the stream may be taken from, by what the record says. The relay
// does not run: its source asks.
func TestCluster_MayTheStreamBeTaken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		record string // of slot s; the server is on timeline 1
		held   string // a part of the error
	}{
		"without a record":                      {record: ``},
		"without a server on record":            {record: `insert into outbox.relays (slot) values ('s')`},
		"the same server":                       {record: recordOf(`system_identifier, 1, null`)},
		"the record of another slot":            {record: strings.ReplaceAll(recordOf(`4711, 1, null`), `'s'`, `'other'`)},
		"a promotion since":                     {record: recordOf(`system_identifier, 0, null`)},
		"another cluster":                       {record: recordOf(`4711, 1, null`), held: "another cluster"},
		"an older history":                      {record: recordOf(`system_identifier, 2, null`), held: "older than timeline 2"},
		"adopted":                               {record: recordOf(`system_identifier, 1, now()`)},
		"another cluster that was once adopted": {record: recordOf(`4711, 1, now()`), held: "another cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.exec(c.record)
			moving := relay.New(b.cfg, b.conn.Config(), b.source, &accept{}, zap.NewNop())
			if got := moving.State().System; got != "" {
				t.Errorf("before it has asked a server it is on %s", got)
			}
			expectHeld(t, b.allow(b.system(), 1), c.held)
			if got := moving.State().System; got != b.system() {
				t.Errorf("it is on system %q", got)
			}
		})
	}
}

func recordOf(server string) string {
	return `insert into outbox.relays (slot, system_identifier, timeline, adopted_at) select 's', ` + server + ` from pg_control_system()`
}

// What the process has seen counts beside the record: an old primary has no
// record of the promotion of another. Only an adoption overrules it.
func TestCluster_MemoryKnowsWhatAnOldPrimaryDoesNot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	relay.New(b.cfg, b.conn.Config(), b.source, &accept{}, zap.NewNop())
	system := b.system()
	b.exec(recordOf(`system_identifier, 0, null`))
	expectHeld(t, b.allow(system, 1), "")
	// As if the relay had been on timeline 2 elsewhere: that server has gone.
	b.exec(`update outbox.relays set timeline = 2`)
	expectHeld(t, b.allow(system, 1), "older than timeline 2")
	b.exec(`update outbox.relays set timeline = 1, adopted_at = now()`)
	expectHeld(t, b.allow(system, 1), "")

	// Another cluster without a record. SQL does not get there: its server is not
	// the one of the test, and that is no reason to wait for a person.
	err := b.allow("4711", 1)
	if held, ok := errors.AsType[*relay.ClusterError](err); err == nil || ok {
		t.Errorf("SQL that leads elsewhere: got %v, %v", err, held)
	}
}

func (b *bundle) allow(system string, timeline int32) error {
	return b.source.allow(context.Background(), system, timeline)
}

func (b *bundle) system() (identifier string) {
	b.t.Helper()
	if err := b.conn.QueryRow(context.Background(), `select system_identifier::text from pg_control_system()`).Scan(&identifier); err != nil {
		b.t.Fatal(err)
	}
	return identifier
}

func expectHeld(t *testing.T, err error, want string) {
	t.Helper()
	held, ok := errors.AsType[*relay.ClusterError](err)
	switch {
	case want == "" && err != nil:
		t.Errorf("got %v, want the stream", err)
	case want != "" && (!ok || !strings.Contains(held.Error(), want) || !strings.Contains(held.Hint(), "outbox-relay adopt")):
		t.Errorf("got %v, want it held: %s", err, want)
	}
}
