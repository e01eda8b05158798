package status_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/internal/golden"
	"github.com/outbox-relay/outbox-relay/internal/status"
)

func (b bundle) readSlot(t *testing.T) *status.SlotReport {
	t.Helper()
	report, err := status.ReadSlot(t.Context(), b.conn, "outbox", b.slot)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestReadSlot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if report := b.readSlot(t); report.Exists || report.Foreign || report.Trouble != "does not exist" || len(report.Unused) != 0 {
		t.Errorf("without a slot: %+v", report)
	}
	b.execute(t, `select pg_create_logical_replication_slot($1, 'pgoutput')`, b.slot)
	b.execute(t, `insert into outbox.messages (key, queue, payload) values ('a', 'orders', '{}')`)
	report := b.readSlot(t)
	if !report.Exists || report.Foreign || report.Trouble != "" || report.Active || report.Plugin != "pgoutput" || report.WALStatus != "reserved" {
		t.Errorf("the slot is %+v", report)
	}
	if report.RestartLSN == "" || report.ConfirmedFlushLSN == "" || *report.UnconfirmedBytes <= 0 || *report.RetainedBytes < *report.UnconfirmedBytes {
		t.Errorf("its positions are %+v", report)
	}
}

// OPS-05: what the slot is, if it is not ours.
func TestReadSlot_Foreign(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.execute(t, `select pg_create_logical_replication_slot($1, 'test_decoding')`, b.slot)
	if report := b.readSlot(t); !report.Foreign || report.Trouble != `belongs to plugin "test_decoding"` {
		t.Errorf("got %+v", report)
	}
}

// OPS-09: slots that nobody reads, and which of them were this outbox's.
func TestReadSlot_Unused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	earlier, stranger, other := b.slot+"_a", b.slot+"_b", b.slot+"_c"
	b.execute(t, `insert into outbox.relays (slot) values ($1), ($2), ($3)`, b.slot, earlier, other)
	for name, plugin := range map[string]string{b.slot: "pgoutput", earlier: "pgoutput", stranger: "pgoutput", other: "test_decoding"} {
		b.execute(t, `select pg_create_logical_replication_slot($1, $2)`, name, plugin)
	}
	report := b.readSlot(t)
	var got []string
	for _, s := range report.Unused {
		if s.RetainedBytes == nil || *s.RetainedBytes <= 0 {
			t.Errorf("slot %s keeps %v", s.Name, s.RetainedBytes)
		}
		if s.Earlier() {
			got = append(got, s.Name+" of ours")
		} else {
			got = append(got, s.Name)
		}
	}
	if diff := cmp.Diff([]string{earlier + " of ours", stranger}, got); diff != "" {
		t.Errorf("unused slots (-want +got)\n%s", diff)
	}
	for except, want := range map[string]int{b.slot: 1, "": 2} {
		found, err := status.EarlierSlots(t.Context(), b.conn, "outbox", except)
		if err != nil || len(found) != want {
			t.Errorf("earlier slots without %q: %+v, %v, want %d", except, found, err, want)
		}
	}
	b.execute(t, report.Unused[0].Drop())
	if found, err := status.EarlierSlots(t.Context(), b.conn, "outbox", b.slot); err != nil || len(found) != 0 {
		t.Errorf("after it was dropped: %+v, %v", found, err)
	}
}

// fixedSlot is a report with every member set.
func fixedSlot() *status.SlotReport {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	pid, retained, unconfirmed, limit, safe, yes, no := 4242, int64(1_258_291), int64(512), int64(10<<30), int64(9<<30), true, false
	return &status.SlotReport{
		SchemaVersion: 1, Name: "outbox_relay", Exists: true,
		Type: "logical", Plugin: "pgoutput", Database: "shop", Active: true, ActivePID: &pid, Holder: "outbox-relay 4711@db1",
		WALStatus: "reserved", RestartLSN: "0/1230", ConfirmedFlushLSN: "0/1234",
		RetainedBytes: &retained, UnconfirmedBytes: &unconfirmed, LimitBytes: &limit, SafeBytes: &safe, Failover: &yes, Synced: &no,
		Unused: []status.UnusedSlot{
			{Name: "relay_of_last_year", WALStatus: "extended", RetainedBytes: &limit, LastUsed: &at},
			{Name: "warehouse", WALStatus: "reserved", RetainedBytes: &retained},
		},
	}
}

// Programs read the JSON: a change of the golden file is a change for them.
func TestSlotReport_JSON(t *testing.T) {
	t.Parallel()
	got, err := json.MarshalIndent(fixedSlot(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/golden/slot.json", string(got)+"\n")
}

func TestSlotReport_Print(t *testing.T) {
	t.Parallel()
	lost := fixedSlot()
	lost.Active, lost.ActivePID, lost.WALStatus, lost.Trouble, lost.SafeBytes, lost.LimitBytes, lost.Unused = false, nil, "lost", "is lost", nil, nil, nil
	missing := &status.SlotReport{Name: "outbox_relay", Trouble: "does not exist"}
	var got strings.Builder
	for _, report := range []*status.SlotReport{fixedSlot(), lost, missing} {
		if err := report.Print(&got); err != nil {
			t.Fatal(err)
		}
		got.WriteString("---\n")
	}
	golden.Compare(t, "testdata/golden/slot.txt", got.String())
}
