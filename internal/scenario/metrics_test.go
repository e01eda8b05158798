package scenario_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// scrape is what a relay says to Prometheus: values by series.
type scrape map[string]float64

// scrape asks a relay for its metrics.
func (h *patient) scrape() (scrape, error) {
	status, body, err := h.ask(h.t.Context(), "/metrics")
	if err != nil || status != http.StatusOK {
		return nil, fmt.Errorf("/metrics is %d: %w", status, err)
	}
	all := scrape{}
	for line := range strings.Lines(body) {
		series, text, found := strings.Cut(strings.TrimSpace(line), "} ")
		if found {
			series += "}"
		} else {
			series, text, _ = strings.Cut(series, " ")
		}
		if value, err := strconv.ParseFloat(text, 64); err == nil && !strings.HasPrefix(line, "#") {
			all[strings.TrimPrefix(series, "outbox_relay_")] = value
		}
	}
	return all, nil
}

// shows waits until a relay exports these values.
func (h *patient) shows(want scrape) {
	h.t.Helper()
	pgtest.Eventually(h.t, scenario.Patience, func() error {
		all, err := h.scrape()
		if err != nil {
			return err
		}
		for series, value := range want {
			if got, found := all[series]; got != value || !found {
				return fmt.Errorf("%s is %v (%v), want %v", series, got, found, value)
			}
		}
		return nil
	})
}

// mayLack are the metrics that are not there where there is nothing to know: the
// server sets the slot no limit, somebody reads it, there is no standby, the
// version is too old, nothing has been checked yet, and there is no TLS.
var mayLack = []string{
	"slot_safe_bytes", "slot_limit_bytes", "slot_time_to_loss_seconds", "slot_inactive_seconds",
	"slot_failover", "slot_failover_ready", "wal_own_bytes_total",
	"verify_due_timestamp_seconds", "verify_duration_seconds", "verify_messages", "verify_fault_messages",
	"slot_idle_limit_seconds", "database_certificate_expiry_timestamp_seconds", "doctor_check_status",
}

// lostSlots waits until a relay says how often it has found its slot lost, for
// whatever reason.
func (h *patient) lostSlots(want float64) {
	h.t.Helper()
	pgtest.Eventually(h.t, scenario.Patience, func() error {
		all, err := h.scrape()
		if err != nil {
			return err
		}
		lost := 0.0
		for series, value := range all {
			if strings.HasPrefix(series, "slot_losses_total{") {
				lost += value
			}
		}
		if lost != want {
			return fmt.Errorf("the slot was lost %v times, want %v", lost, want)
		}
		return nil
	})
}

// exportsAll checks that a relay has every metric of the list.
func (h *patient) exportsAll() {
	h.t.Helper()
	all, err := h.scrape()
	if err != nil {
		h.t.Fatal(err)
	}
	names := map[string]bool{}
	for series := range all {
		name, _, _ := strings.Cut(series, "{")
		names[name], names[strings.TrimSuffix(name, "_count")] = true, true
	}
	list, err := os.ReadFile("../metrics/testdata/metrics.golden")
	if err != nil {
		h.t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(list)) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "outbox_relay_"), " ")
		if n++; !names[name] && !slices.Contains(mayLack, name) {
			h.t.Errorf("%s is not exported", name)
		}
	}
	if n < 50 {
		h.t.Errorf("the list has %d metrics", n)
	}
}

// What a relay counts and what Postgres knows, from a relay that moves messages
// and from one that waits for it.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{"RELAY_METRICS_QUEUES": "1"})
	active := examine(t, process(t, w, nil))
	p := relaybin.Run(t, w.Env, "run")
	p.AwaitLog(t, "slot is held by another session, standing by")
	standby := examine(t, p)
	standby.shows(scrape{`state{state="standby"}`: 1, "leader": 0, "ready": 1, "live": 1, `mode{mode="wal"}`: 1})
	active.shows(scrape{`state{state="active"}`: 1, "leader": 1, "ready": 1, "epoch": 1, "sessions_total": 1})

	w.Insert(scenario.Batch("m", 20, "a", "b", "")...)
	w.AwaitAccepted()
	w.Fault(emulator.Fault{Route: "queue.publish", Status: 400, Count: 1})
	w.Exec(`insert into outbox.messages (key, queue, payload) values ('refused', 'orders', '{}')`)
	w.Exec(`insert into outbox.messages (key, queue, payload, deliver_at) values ('later', 'mails', '{}', now() + interval '1 day')`)
	active.shows(scrape{
		`dispatched_total{queue="orders"}`:                20,
		`requests_total{class="accepted",queue="orders"}`: 20,
		`requests_total{class="refused",queue="orders"}`:  1,
		`request_duration_seconds_count{queue="orders"}`:  21,
		`latency_seconds_count{path="live"}`:              20,
		`dead_letters_total{reason="refused"}`:            1,
		`deferred_total{reason="scheduled"}`:              1,
		`messages_received_total`:                         22,
		`endpoint_closed{class="transient"}`:              0,
		`recovered_total`:                                 0,
	})
	inTheTables := scrape{
		`dead_letter_messages{reason="refused"}`: 1,
		`deferred_messages{reason="scheduled"}`:  1,
		`slot_wal_status{status="reserved"}`:     1,
		"slot_active":                            1,
		"without_outcome_messages":               0,
	}
	active.shows(inTheTables)
	standby.shows(inTheTables)
	active.exportsAll()
	standby.exportsAll()
}

// The relay that moves messages checks what became of them, and says so; one that
// waits for it does not.
func TestMetrics_OfTheDailyCheck(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{"RELAY_VERIFY_INTERVAL": "10s"})
	p := process(t, w, nil)
	active := examine(t, p)
	waits := relaybin.Run(t, w.Env, "run")
	waits.AwaitLog(t, "slot is held by another session, standing by")
	standby := examine(t, waits)
	w.Insert(scenario.Batch("m", 20, "a", "")...)
	w.AwaitMarked()
	active.shows(scrape{
		"verify_messages": 20, "verify_failures_total": 0,
		`verify_fault_messages{kind="unaccounted"}`: 0, `verify_fault_messages{kind="two_outcomes"}`: 0,
	})
	w.Exec(`insert into outbox.dead_letters (message_id, attempts, reason) select min(message_id), 1, 'refused' from outbox.dispatched`)
	active.shows(scrape{"verify_messages": 20, `verify_fault_messages{kind="two_outcomes"}`: 1})
	p.AwaitLog(t, "outbox has faults")
	w.Exec(`delete from outbox.dead_letters`)
	active.shows(scrape{`verify_fault_messages{kind="two_outcomes"}`: 0})
	if all, err := standby.scrape(); err != nil || all["verify_last_timestamp_seconds"] != 0 {
		t.Errorf("the standby has checked: %v, %v", all["verify_last_timestamp_seconds"], err)
	}
}

// exceeds waits until a relay exports more than these values.
func (h *patient) exceeds(least scrape) {
	h.t.Helper()
	pgtest.Eventually(h.t, scenario.Patience, func() error {
		all, err := h.scrape()
		if err != nil {
			return err
		}
		for series, value := range least {
			if got, found := all[series]; got <= value || !found {
				return fmt.Errorf("%s is %v (%v), want more than %v", series, got, found, value)
			}
		}
		return nil
	})
}

// What the alert rules look at moves when the queue service is down, and when
// Postgres is.
func TestMetrics_DuringFaults(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(hasty).With(map[string]string{"RELAY_DEFER_AFTER": "200ms", "RELAY_PROBE_MAX": "1s"})
	proxy := w.Proxy()
	h := examine(t, process(t, w, nil))
	awaitLife(t, w, "before")
	h.shows(scrape{"leader": 1, "ready": 1, `endpoint_closed{class="transient"}`: 0})

	fault := w.Fault(emulator.Fault{Route: "queue.publish", Status: 503})
	w.Insert(scenario.Batch("m", 20, "a", "b", "")...)
	h.shows(scrape{"ready": 0, "leader": 1, `endpoint_closed{class="transient"}`: 1, `queue_held{queue="orders"}`: 1})
	h.exceeds(scrape{`requests_total{class="transient",queue="orders"}`: 3, `deferred_messages{reason="held"}`: 0, `deferred_total{reason="held"}`: 0})
	w.Queue.RemoveFault(fault)
	h.shows(scrape{"ready": 1, `endpoint_closed{class="transient"}`: 0, `queue_held{queue="orders"}`: 0})
	h.exceeds(scrape{`latency_seconds_count{path="deferred"}`: 0})
	w.AwaitMarked()

	proxy.Refuse(true)
	proxy.Cut()
	h.shows(scrape{"ready": 0, "leader": 0, `state{state="reconnecting"}`: 1, "live": 1})
	h.exceeds(scrape{"database_read_failures_total": 0, "database_age_seconds": 15})
	proxy.Refuse(false)
	h.shows(scrape{"ready": 1, "leader": 1})
	h.exceeds(scrape{"epoch": 1, "sessions_total": 1}) // a machine that stands still for two seconds costs one more
	w.Settle()
}
