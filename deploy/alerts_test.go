package deploy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const alertsFile = "prometheus/alerts.yaml"

// rule is an alert rule as Prometheus reads it.
type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal([]byte(read(t, alertsFile)), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 30 {
		t.Fatalf("%s has %d rules", alertsFile, len(all))
	}
	return all
}

// Who is woken by an alert finds out what it means and what to do.
func TestAlerts_LeadToTheirRunbooks(t *testing.T) {
	t.Parallel()
	page := read(t, "../docs/operations.md")
	seen := map[string]bool{}
	for _, r := range rules(t) {
		if seen[r.Alert] {
			t.Errorf("%s is there twice", r.Alert)
		}
		seen[r.Alert] = true
		if !strings.Contains(page, "\n#### "+r.Alert+"\n") {
			t.Errorf("docs/operations.md has no section %s", r.Alert)
		}
		if url := r.Annotations["runbook_url"]; !strings.HasSuffix(url, "/docs/operations.md#"+strings.ToLower(r.Alert)) {
			t.Errorf("%s leads to %q", r.Alert, url)
		}
		if !slices.Contains([]string{"page", "warn", "info"}, r.Labels["severity"]) || r.Annotations["summary"] == "" {
			t.Errorf("%s has labels %v and annotations %v", r.Alert, r.Labels, r.Annotations)
		}
	}
	for _, found := range regexp.MustCompile(`(?m)^#### (OutboxRelay\w+)$`).FindAllStringSubmatch(page, -1) {
		if !seen[found[1]] {
			t.Errorf("docs/operations.md has a section %s, and there is no such alert", found[1])
		}
	}
}

// exported are the metrics that the program exports, with their types.
func exported(t *testing.T) map[string]string {
	t.Helper()
	types := map[string]string{"process_start_time_seconds": "gauge"} // of Prometheus's own client
	for line := range strings.Lines(read(t, "../internal/metrics/testdata/metrics.golden")) {
		fields := strings.Fields(line)
		types[fields[0]] = fields[1]
	}
	return types
}

// expectMetrics reports the metrics in an expression that the program does not
// export.
func expectMetrics(t *testing.T, types map[string]string, where, expr string) {
	t.Helper()
	found := regexp.MustCompile(`\b(outbox_relay|process)_\w+`).FindAllString(expr, -1)
	if len(found) == 0 {
		t.Errorf("%s asks for nothing: %s", where, expr)
	}
	for _, name := range found {
		family := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, cut := strings.CutSuffix(name, suffix); cut && types[base] == "histogram" {
				family = base
			}
		}
		if types[family] == "" || family == name && types[family] == "histogram" {
			t.Errorf("%s asks for %s, which no relay exports", where, name)
		}
	}
}

func TestAlerts_AskForWhatIsExported(t *testing.T) {
	t.Parallel()
	types := exported(t)
	for _, r := range rules(t) {
		expectMetrics(t, types, r.Alert, r.Expr)
	}
}

// world is what Prometheus sees: values by series, one for each minute, in its own
// notation for tests.
type world map[string]string

// healthy is an hour of two relays, of which one moves messages.
func healthy() world {
	w := world{}
	for _, instance := range []string{"a", "b"} {
		set := func(name, labels, values string) {
			w[series(name, labels, instance)] = values
		}
		leader := "0x60"
		if instance == "a" {
			leader = "1x60"
			set("outbox_relay_requests_total", `class="accepted",queue="orders"`, "0+600x60")
			set("outbox_relay_requests_total", `class="transient",queue="orders"`, "0+1x60")
			set("outbox_relay_request_duration_seconds_bucket", `le="0.1",queue="orders"`, "0+595x60")
			set("outbox_relay_request_duration_seconds_bucket", `le="10",queue="orders"`, "0+600x60")
			set("outbox_relay_request_duration_seconds_bucket", `le="+Inf",queue="orders"`, "0+600x60")
			set("outbox_relay_retention_last_success_timestamp_seconds", "", "0+60x60")
			set("outbox_relay_verify_due_timestamp_seconds", "", "1200x20 86000x40") // the first check, and the next day's
		} else {
			set("outbox_relay_retention_last_success_timestamp_seconds", "", "0x60")
		}
		set("outbox_relay_leader", "", leader)
		set("outbox_relay_build_info", `version="v1"`, "1x60")
		set("process_start_time_seconds", "", "1000x60")
		set("outbox_relay_slot_active", "", "1x60")
		set("outbox_relay_slot_retained_bytes", "", "16777216x60")
		set("outbox_relay_slot_limit_bytes", "", "10737418240x60")
		set("outbox_relay_slot_catalog_xmin_age_transactions", "", "300+60x60")
		set("outbox_relay_slot_failover_ready", "", "1x60")
		set("outbox_relay_slot_idle_limit_seconds", "", "172800x60")
		set("outbox_relay_slot_inactive_seconds", "", "_x60") // unknown while somebody reads it
		set("outbox_relay_table_dead_rows", `table="messages"`, "90000x60")
		set("outbox_relay_table_rows", `table="messages"`, "5000000x60")
		set("outbox_relay_database_certificate_expiry_timestamp_seconds", `certificate="server"`, "5184000x60") // in 60 days
		set("outbox_relay_slot_time_to_loss_seconds", "", "+Inf +Inf 1200x58")                                  // much is written, and confirmed
		for _, one := range []string{"outbox_relay_ready", "outbox_relay_live", "outbox_relay_sessions_total"} {
			set(one, "", "1x60")
		}
		set("outbox_relay_mode", `mode="wal"`, "1x60")
		for name, labels := range map[string][]string{
			"outbox_relay_spans_lost_total":                   {""},
			"outbox_relay_verify_fault_messages":              {`kind="unaccounted"`, `kind="two_outcomes"`},
			"outbox_relay_slot_spilled_transactions_total":    {""},
			"outbox_relay_state":                              {`state="holding"`, `state="careful"`},
			"outbox_relay_without_outcome_oldest_age_seconds": {""},
			"outbox_relay_without_outcome_messages":           {""},
			"outbox_relay_window_oldest_age_seconds":          {""},
			"outbox_relay_deferred_oldest_age_seconds":        {`reason="held"`, `reason="transient"`},
			"outbox_relay_deferred_messages":                  {`reason="held"`, `reason="transient"`},
			"outbox_relay_unknown_outcome_oldest_age_seconds": {""},
			"outbox_relay_possible_duplicates_total":          {""},
			"outbox_relay_dead_letters_total":                 {`reason="refused"`},
			"outbox_relay_dead_letter_messages":               {`reason="refused"`},
			"outbox_relay_recovered_total":                    {""},
			"outbox_relay_endpoint_closed":                    {`class="endpoint_closed"`, `class="transient"`},
			"outbox_relay_queue_closed":                       {`queue="orders"`},
			"outbox_relay_queue_paused":                       {`queue="orders"`},
			"outbox_relay_queue_held":                         {`queue="orders"`},
			"outbox_relay_queue_draining_lanes":               {`queue="orders"`},
			"outbox_relay_connection_trouble":                 {`connection="writing"`, `connection="reading"`},
			"outbox_relay_source_trouble":                     {""},
			"outbox_relay_loop_trouble":                       {`loop="sweep"`, `loop="writer"`},
			"outbox_relay_database_age_seconds":               {""},
			"outbox_relay_stream_notices_total":               {""},
			"outbox_relay_claims_oldest_expired_age_seconds":  {""},
			"outbox_relay_oldest_transaction_age_seconds":     {`kind="writer"`, `kind="prepared"`, `kind="reader"`},
			"outbox_relay_clock_skew_seconds":                 {""},
			"outbox_relay_doctor_check_status":                {`check="D28"`},
			"outbox_relay_slot_losses_total":                  {`reason="missing"`, `reason="wal_removed"`},
			"outbox_relay_slot_moves_total":                   {""},
			"outbox_relay_slot_wal_status":                    {`status="lost"`, `status="unreserved"`, `status="extended"`, `status="missing"`},
		} {
			for _, l := range labels {
				set(name, l, "0x60")
			}
		}
		// What a busy day looks like: a message that has just come, one that waits
		// until tomorrow, a backlog that drains.
		set("outbox_relay_without_outcome_oldest_age_seconds", "", "0.2 3 0.1x58")
		set("outbox_relay_deferred_oldest_age_seconds", `reason="scheduled"`, "70000+60x60")
		set("outbox_relay_deferred_messages", `reason="scheduled"`, "0+100x60")
		set("outbox_relay_deferred_messages", `reason="transient"`, "6000-100x60")
		set("outbox_relay_database_age_seconds", "", "14x60")
		set("outbox_relay_oldest_transaction_age_seconds", `kind="reader"`, "7200+60x60") // a dump
		set("outbox_relay_clock_skew_seconds", "", "-0.3x60")
		set("outbox_relay_doctor_check_status", `check="D14"`, "1x60")
	}
	return w
}

// series names a series of one relay, or of the leader.
func series(name, labels, instance string) string {
	if labels != "" {
		labels = "," + labels
	}
	return fmt.Sprintf(`%s{job="shop",instance=%q%s}`, name, instance, labels)
}

// fault is a world with something wrong, and the alerts that fire after an hour of
// it.
type fault struct {
	name    string
	changes map[string]string // of series of the leader, by name and labels
	without string            // a metric that is missing
	alerts  []string
}

var faults = []fault{
	{name: "nothing", alerts: nil},
	{name: "no relay", without: "outbox_relay_", alerts: []string{"OutboxRelayAbsent"}},
	{name: "no leader", changes: map[string]string{"outbox_relay_leader": "1x30 0x30"}, alerts: []string{"OutboxRelayNoLeader"}},
	{name: "both lead", changes: map[string]string{"outbox_relay_leader": "2x60"}, alerts: []string{"OutboxRelayTwoLeaders"}},
	{name: "not ready", changes: map[string]string{"outbox_relay_ready": "1x50 0x10"}, alerts: []string{"OutboxRelayNotReady"}},
	{name: "stuck", changes: map[string]string{"outbox_relay_live": "1x50 0x10"}, alerts: []string{"OutboxRelayStuck"}},
	{name: "another cluster", changes: map[string]string{`outbox_relay_state{state="holding"}`: "0x50 1x10"}, alerts: []string{"OutboxRelayHolding"}},
	{name: "crashes", changes: map[string]string{`outbox_relay_state{state="careful"}`: "0x59 1"}, alerts: []string{"OutboxRelayCareful"}},
	{name: "restarts", changes: map[string]string{"process_start_time_seconds": "1000x50 2000+60x10"}, alerts: []string{"OutboxRelayRestarts"}},
	{name: "reconnects", changes: map[string]string{"outbox_relay_sessions_total": "1x50 2+2x10"}, alerts: []string{"OutboxRelayReconnects"}},
	{name: "a restart of the server", changes: map[string]string{"outbox_relay_sessions_total": "1x30 2x30"}, alerts: nil},
	{name: "a message waits", changes: map[string]string{"outbox_relay_without_outcome_oldest_age_seconds": "0x52 30+60x8"}, alerts: []string{"OutboxRelayMessagesWait"}},
	{name: "a message waits for long", changes: map[string]string{"outbox_relay_without_outcome_oldest_age_seconds": "0+60x60"}, alerts: []string{"OutboxRelayMessagesWait", "OutboxRelayMessagesWaitLong"}},
	{name: "a message stays in memory", changes: map[string]string{"outbox_relay_window_oldest_age_seconds": "0x52 30+60x8"}, alerts: []string{"OutboxRelayMessagesWait"}},
	{name: "very many wait", changes: map[string]string{"outbox_relay_without_outcome_messages": "50000+10000x5 100000x55"}, alerts: []string{"OutboxRelayManyWait"}},
	{name: "old backlog", changes: map[string]string{`outbox_relay_deferred_oldest_age_seconds{reason="transient"}`: "600+60x60"}, alerts: []string{"OutboxRelayBacklogOld"}},
	{name: "growing backlog", changes: map[string]string{`outbox_relay_deferred_messages{reason="held"}`: "0+500x60"}, alerts: []string{"OutboxRelayBacklogGrows"}},
	{name: "old unknown outcome", changes: map[string]string{"outbox_relay_unknown_outcome_oldest_age_seconds": "70000+60x60"}, alerts: []string{"OutboxRelayUnknownOutcomeOld"}},
	{name: "twice", changes: map[string]string{"outbox_relay_possible_duplicates_total": "0x50 1x10"}, alerts: []string{"OutboxRelayPossibleDuplicates"}},
	{name: "a dead letter", changes: map[string]string{`outbox_relay_dead_letters_total{reason="refused"}`: "0x50 1x10", `outbox_relay_dead_letter_messages{reason="refused"}`: "0x50 1x10"}, alerts: []string{"OutboxRelayDeadLetters"}},
	{name: "many dead letters", changes: map[string]string{`outbox_relay_dead_letter_messages{reason="refused"}`: "101x60"}, alerts: []string{"OutboxRelayManyDeadLetters"}},
	{name: "the sweep finds messages", changes: map[string]string{"outbox_relay_recovered_total": "0x50 3x10"}, alerts: []string{"OutboxRelayRecovered"}},
	{name: "unaccounted", changes: map[string]string{`outbox_relay_verify_fault_messages{kind="unaccounted"}`: "0x58 3x2"}, alerts: []string{"OutboxRelayUnaccounted"}},
	{name: "changed by hand", changes: map[string]string{`outbox_relay_verify_fault_messages{kind="two_outcomes"}`: "0x58 1x2"}, alerts: []string{"OutboxRelayContradictions"}},
	{name: "no check for two days", changes: map[string]string{"outbox_relay_verify_due_timestamp_seconds": "-84600x60"}, alerts: []string{"OutboxRelayCheckLate"}},
	{name: "collector down", changes: map[string]string{"outbox_relay_spans_lost_total": "0x30 5+5x30"}, alerts: []string{"OutboxRelaySpansLost"}},
	{name: "key revoked", changes: map[string]string{`outbox_relay_endpoint_closed{class="endpoint_closed"}`: "0x57 1x3"}, alerts: []string{"OutboxRelayKeyRefused"}},
	{name: "queue service down", changes: map[string]string{`outbox_relay_endpoint_closed{class="transient"}`: "0x50 1x10"}, alerts: []string{"OutboxRelayEndpointClosed"}},
	{name: "queue missing", changes: map[string]string{`outbox_relay_queue_closed{queue="orders"}`: "0x50 1x10"}, alerts: []string{"OutboxRelayQueueClosed"}},
	{name: "paused and forgotten", changes: map[string]string{`outbox_relay_queue_paused{queue="orders"}`: "1x60"}, alerts: []string{"OutboxRelayQueuePaused"}},
	{name: "a hot key", changes: map[string]string{`outbox_relay_queue_draining_lanes{queue="orders"}`: "0x40 1x20"}, alerts: []string{"OutboxRelayHotKey"}},
	{name: "a queue drains, and lanes beside it", changes: map[string]string{`outbox_relay_queue_draining_lanes{queue="orders"}`: "3x60", `outbox_relay_queue_held{queue="orders"}`: "1x60"}, alerts: nil},
	{name: "a queue fails now and then", changes: map[string]string{`outbox_relay_requests_total{class="transient",queue="orders"}`: "0+100x60"}, alerts: []string{"OutboxRelayRequestsFail"}},
	{name: "a slow queue", changes: map[string]string{`outbox_relay_request_duration_seconds_bucket{le="0.1",queue="orders"}`: "0x60"}, alerts: []string{"OutboxRelayRequestsSlow"}},
	{name: "full disk", changes: map[string]string{`outbox_relay_connection_trouble{connection="writing"}`: "0x55 1x5"}, alerts: []string{"OutboxRelayWritesFail"}},
	{name: "publication changed", changes: map[string]string{"outbox_relay_source_trouble": "0x50 1x10"}, alerts: []string{"OutboxRelaySourceTrouble"}},
	{name: "no right to sweep", changes: map[string]string{`outbox_relay_loop_trouble{loop="sweep"}`: "0x45 1x15"}, alerts: []string{"OutboxRelayLoopFails"}},
	{name: "Postgres out of reach", changes: map[string]string{"outbox_relay_database_age_seconds": "10x50 15+60x10"}, alerts: []string{"OutboxRelayDatabaseUnseen"}},
	{name: "a notice", changes: map[string]string{"outbox_relay_stream_notices_total": "0x50 1x10"}, alerts: []string{"OutboxRelayNotices"}},
	{name: "retention stands still", changes: map[string]string{"outbox_relay_retention_last_success_timestamp_seconds": "-3700x60"}, alerts: []string{"OutboxRelayRetentionLate"}},
	{name: "claims pile up", changes: map[string]string{"outbox_relay_claims_oldest_expired_age_seconds": "20000+60x60"}, alerts: []string{"OutboxRelayClaimsPileUp"}},
	{name: "vacuum held back", changes: map[string]string{`outbox_relay_table_dead_rows{table="messages"}`: "3000000x60"}, alerts: []string{"OutboxRelayVacuumBehind"}},
	{name: "a forgotten transaction", changes: map[string]string{`outbox_relay_oldest_transaction_age_seconds{kind="prepared"}`: "0+60x60"}, alerts: []string{"OutboxRelayTransactionOpen"}},
	{name: "a certificate ends", changes: map[string]string{`outbox_relay_database_certificate_expiry_timestamp_seconds{certificate="server"}`: "1200000x60"}, alerts: []string{"OutboxRelayCertificateExpires"}},
	{name: "clocks run apart", changes: map[string]string{"outbox_relay_clock_skew_seconds": "-1.5x60"}, alerts: []string{"OutboxRelayClockSkew"}},
	{name: "a right was taken", changes: map[string]string{`outbox_relay_doctor_check_status{check="D28"}`: "0x45 2x15"}, alerts: []string{"OutboxRelayDoctorFails"}},
	{name: "slot made anew", changes: map[string]string{`outbox_relay_slot_losses_total{reason="wal_removed"}`: "0x50 1x10"}, alerts: []string{"OutboxRelaySlotWasLost"}},
	{name: "slot made anew at the start", changes: map[string]string{`outbox_relay_slot_losses_total{reason="missing"}`: "_x55 1x5"}, alerts: []string{"OutboxRelaySlotWasLost"}},
	{name: "slot lost", changes: map[string]string{`outbox_relay_slot_wal_status{status="lost"}`: "0x59 1"}, alerts: []string{"OutboxRelaySlotLost"}},
	{name: "slot unreserved", changes: map[string]string{`outbox_relay_slot_wal_status{status="unreserved"}`: "0x59 1"}, alerts: []string{"OutboxRelaySlotUnreserved"}},
	{name: "slot extended", changes: map[string]string{`outbox_relay_slot_wal_status{status="extended"}`: "0x40 1x20"}, alerts: []string{"OutboxRelaySlotExtended"}},
	{name: "slot dropped", changes: map[string]string{`outbox_relay_slot_wal_status{status="missing"}`: "0x50 1x10"}, alerts: []string{"OutboxRelaySlotMissing"}},
	{name: "nobody reads the slot", changes: map[string]string{"outbox_relay_slot_active": "1x40 0x20"}, alerts: []string{"OutboxRelaySlotInactive"}},
	{name: "nobody reads the slot for a day", changes: map[string]string{"outbox_relay_slot_active": "0x60", "outbox_relay_slot_inactive_seconds": "85000+60x60"}, alerts: []string{"OutboxRelaySlotIdle", "OutboxRelaySlotInactive"}},
	{name: "the slot is nearly lost", changes: map[string]string{"outbox_relay_slot_retained_bytes": "16777216+150000000x60"}, alerts: []string{"OutboxRelayRetainedWAL", "OutboxRelaySlotLossNear"}},
	{name: "much WAL", changes: map[string]string{"outbox_relay_slot_retained_bytes": "3000000000x60"}, alerts: []string{"OutboxRelayRetainedWAL"}},
	{name: "no limit", without: "outbox_relay_slot_limit_bytes", alerts: []string{"OutboxRelaySlotNoLimit"}},
	{name: "no limit, much WAL", without: "outbox_relay_slot_limit_bytes", changes: map[string]string{"outbox_relay_slot_retained_bytes": "6000000000x60"}, alerts: []string{"OutboxRelayRetainedWAL", "OutboxRelaySlotNoLimit"}},
	{name: "no limit, very much WAL", without: "outbox_relay_slot_limit_bytes", changes: map[string]string{"outbox_relay_slot_retained_bytes": "22000000000x60"}, alerts: []string{"OutboxRelayRetainedWAL", "OutboxRelayRetainedWALUnlimited", "OutboxRelaySlotNoLimit"}},
	{name: "old horizon", changes: map[string]string{"outbox_relay_slot_catalog_xmin_age_transactions": "8000000+60000x60"}, alerts: []string{"OutboxRelayHorizonOld"}},
	{name: "very old horizon", changes: map[string]string{"outbox_relay_slot_catalog_xmin_age_transactions": "99000000+60000x60"}, alerts: []string{"OutboxRelayHorizonOld", "OutboxRelayHorizonVeryOld"}},
	{name: "large transactions all the time", changes: map[string]string{"outbox_relay_slot_spilled_transactions_total": "0+3x60"}, alerts: []string{"OutboxRelaySpilling"}},
	{name: "one large transaction", changes: map[string]string{"outbox_relay_slot_spilled_transactions_total": "0x40 1x20"}, alerts: nil},
	{name: "the standby is gone", changes: map[string]string{"outbox_relay_slot_failover_ready": "1x45 0x15"}, alerts: []string{"OutboxRelayFailoverNotReady"}},
	{name: "slot moved", changes: map[string]string{"outbox_relay_slot_moves_total": "0x50 1x10"}, alerts: []string{"OutboxRelaySlotMoved"}},
}

// both are the series that a fault makes the same on both relays: each of them
// reads them from the same server.
var both = regexp.MustCompile(`slot_|without_outcome|deferred_|unknown_outcome|dead_letter_messages|claims_|table_|transaction_age|certificate|doctor_`)

func (f *fault) world(t *testing.T) world {
	t.Helper()
	w := healthy()
	for change, values := range f.changes {
		name, labels, _ := strings.Cut(strings.TrimSuffix(change, "}"), "{")
		for _, instance := range []string{"a", "b"} {
			s := series(name, labels, instance)
			if _, there := w[s]; !there && instance == "a" {
				t.Fatalf("%s changes %s, which a healthy relay does not export", f.name, change)
			}
			if instance == "a" || both.MatchString(name) {
				w[s] = values
			}
		}
	}
	if f.without != "" {
		maps.DeleteFunc(w, func(s, _ string) bool { return strings.HasPrefix(s, f.without) })
	}
	return w
}

// sample is what promtool expects an expression to be.
type sample struct {
	Labels string  `json:"labels"`
	Value  float64 `json:"value"`
}

// firing expects that these alerts fire at a time, and no others.
func firing(at string, alerts []string) map[string]any {
	samples := []sample{}
	for _, name := range alerts {
		samples = append(samples, sample{fmt.Sprintf("{alertname=%q}", name), 1})
	}
	return map[string]any{"expr": `max by (alertname) (ALERTS{alertstate="firing"})`, "eval_time": at, "exp_samples": samples}
}

// Each alert fires for its fault, nothing else does, and a healthy hour is silent
// throughout.
func TestAlerts_FireForTheirFaults(t *testing.T) {
	t.Parallel()
	path, err := filepath.Abs(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	tests, covered := []map[string]any{}, map[string]bool{}
	for i := range faults {
		f := &faults[i]
		input := []map[string]string{}
		for s, values := range f.world(t) {
			input = append(input, map[string]string{"series": s, "values": values})
		}
		expected := []map[string]any{firing("60m", f.alerts)}
		if f.alerts == nil {
			for minute := 1; minute < 60; minute++ {
				expected = append(expected, firing(fmt.Sprintf("%dm", minute), nil))
			}
		}
		for _, name := range f.alerts {
			covered[name] = true
		}
		tests = append(tests, map[string]any{"name": f.name, "interval": "1m", "input_series": input, "promql_expr_test": expected})
	}
	for _, r := range rules(t) {
		if !covered[r.Alert] {
			t.Errorf("no fault makes %s fire", r.Alert)
		}
	}
	text, err := json.Marshal(map[string]any{"rule_files": []string{path}, "evaluation_interval": "1m", "tests": tests})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tests.yaml") // JSON is YAML
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", file)
}

func TestAlerts_AreRules(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", alertsFile)
}

// promtool runs Prometheus's tool.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.CommandContext(t.Context(), "../hack/promtool").Output()
	if err != nil {
		t.Fatalf("promtool: %v", err)
	}
	out, err := exec.CommandContext(t.Context(), strings.TrimSpace(string(path)), args...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
