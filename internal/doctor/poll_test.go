package doctor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/relay/poll"
)

// newPollConfig is newConfig for a relay that polls.
func newPollConfig(t *testing.T, url string) doctor.Config {
	t.Helper()
	cfg := newConfig(t, url)
	cfg.Poll = &poll.Config{
		Schema: cfg.Schema, Slot: cfg.Slot, ConnectTimeout: 10 * time.Second, LeaseTimeout: 15 * time.Second,
	}
	return cfg
}

// A server that is not set up for logical replication is all that polling needs.
func TestRun_Poll(t *testing.T) {
	t.Parallel()
	cfg := newPollConfig(t, pgtest.Migrated(t))
	execute(t, pgtest.Shared(t).URL(cfg.Database.Database), `drop publication outbox_relay`)
	report := examine(t, cfg)
	for _, r := range report.Checks {
		want := doctor.Pass
		switch r.ID {
		case "D05":
			want = doctor.Warn // the superuser of the rig
		case "D03", "D04", "D06", "D20", "D21", "D51", "D16", "D17", "D14", "D15", "D09", "D10", "D11", "D12", "D13", "D19", "D36", "D37", "D24":
			want = doctor.Skip
			if !strings.Contains(r.Message, "RELAY_MODE=poll") {
				t.Errorf("%s is skipped with the reason %q", r.ID, r.Message)
			}
		}
		if r.Status != want {
			t.Errorf("%s is %s, want %s: %+v", r.ID, r.Status, want, r)
		}
	}
}

func TestRun_Poll_EveryCheckIsOnThePage(t *testing.T) {
	t.Parallel()
	wantOnThePage(t, examine(t, newPollConfig(t, noDatabase)).Checks)
}

func TestPoll_NumbersKeptForLater(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	execute(t, url, `alter sequence outbox.messages_id_seq cache 20`)
	expect(t, newPollConfig(t, url), "D49", doctor.Fail, "cache of 20", "alter sequence outbox.messages_id_seq cache 1")
}

func TestPoll_SlotOfBefore(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	cfg := newPollConfig(t, url)
	expect(t, cfg, "D50", doctor.Pass)
	execute(t, url, `select pg_create_logical_replication_slot('`+cfg.Slot+`', 'pgoutput')`)
	mend(t, url, expect(t, cfg, "D50", doctor.Warn, "keeps WAL"))
	expect(t, cfg, "D50", doctor.Pass)
}
