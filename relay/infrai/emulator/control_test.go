package emulator_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// ask calls a control route, without a key, and decodes the answer.
func (r *rig) ask(method, path, body string, status int) map[string]any {
	r.t.Helper()
	got := r.do(method, path, body, "Authorization", "")
	if got.Status != status {
		r.t.Fatalf("%s %s: status %d, want %d: %s", method, path, got.Status, status, got.Raw)
	}
	var fields map[string]any
	if err := json.Unmarshal(got.Raw, &fields); err != nil {
		r.t.Fatalf("%s %s: %s: %v", method, path, got.Raw, err)
	}
	return fields
}

func TestControl_Clock(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	s.post(publishPath, publish("k", `{"n":1}`)).want(t, http.StatusOK, "")
	if got := s.ask(http.MethodPost, "/_emulator/clock", `{"advance":"24h1s"}`, 200); got["offset"] != "24h0m1s" {
		t.Errorf("clock %v", got)
	}
	if got := s.ask(http.MethodGet, "/_emulator/clock", ``, 200); got["offset"] != "24h0m1s" {
		t.Errorf("clock %v", got)
	}
	s.post(publishPath, publish("k", `{"n":2}`)).want(t, http.StatusOK, "")
	for _, bad := range []string{`{"advance":"-1s"}`, `{"advance":"-1s","freeze":true}`, `{"advance":"soon"}`, `{"by":"1s"}`, `{}`, ``} {
		s.ask(http.MethodPost, "/_emulator/clock", bad, 400)
	}
}

// A frozen clock moves by what it is told, and not by itself.
func TestControl_FrozenClock(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{})
	if got := s.ask(http.MethodGet, "/_emulator/clock", ``, 200); got["frozen"] != false {
		t.Errorf("clock %v", got)
	}
	first := s.ask(http.MethodPost, "/_emulator/clock", `{"freeze":true}`, 200)
	if first["frozen"] != true || first["offset"] != "0s" {
		t.Errorf("clock %v", first)
	}
	if again := s.ask(http.MethodPost, "/_emulator/clock", `{"freeze":true}`, 200); again["now"] != first["now"] {
		t.Errorf("it was %v and is %v", first["now"], again["now"])
	}
	s.ask(http.MethodPost, "/_emulator/clock", `{"advance":"5m"}`, 200)
	then, err := time.Parse(time.RFC3339Nano, first["now"].(string))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.ask(http.MethodGet, "/_emulator/clock", ``, 200); got["now"] != then.Add(5*time.Minute).Format(time.RFC3339Nano) {
		t.Errorf("5 minutes after %v it is %v", first["now"], got["now"])
	}
}

func TestControl_Settings(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{})
	got := s.ask(http.MethodGet, "/_emulator/settings", ``, 200)
	for _, w := range emulator.Switches() {
		if got[w.Name] != w.Default {
			t.Errorf("%s is %v, want %s", w.Name, got[w.Name], w.Default)
		}
	}
	if len(got) != len(emulator.Switches()) {
		t.Errorf("%d settings, want %d", len(got), len(emulator.Switches()))
	}
	got = s.ask(http.MethodPut, "/_emulator/settings", `{"consume_key":"messages","rate_limit":500000,"key_conflict":422}`, 200)
	if got["consume_key"] != "messages" || got["rate_limit"] != "500000" || got["key_conflict"] != "422" || got["recreate"] != "ok" {
		t.Errorf("settings %v", got)
	}
	for _, bad := range []string{`{"consume_key":"things"}`, `{"nonsense":"on"}`, `{"rate_limit":-1}`, `{"rate_limit":"many"}`, `[]`} {
		s.ask(http.MethodPut, "/_emulator/settings", bad, 400)
	}
	if got := s.Settings(); got.ConsumeKey != "messages" || got.RateLimit != 500_000 {
		t.Errorf("a refused change changed something: %+v", got)
	}
}

func TestControl_Faults(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	added := s.ask(http.MethodPost, "/_emulator/faults", `{"route":"queue.publish","every":2,"status":429,"retry_after":"4","delay":"1ms"}`, 200)
	if got := fmt.Sprint(added["ids"]); got != "[1]" {
		t.Errorf("ids %s", got)
	}
	added = s.ask(http.MethodPost, "/_emulator/faults", `[{"key":"a","cut":"close"},{"header":{"Retry-After":["1","2"]},"status":503,"count":1}]`, 200)
	if got := fmt.Sprint(added["ids"]); got != "[2 3]" {
		t.Errorf("ids %s", got)
	}
	for i, want := range []int{503, 429, 200, 429} {
		if got := s.post(publishPath, publish(fmt.Sprint(i), `{}`)); got.Status != want {
			t.Errorf("call %d: status %d, want %d", i, got.Status, want)
		}
	}
	list := s.do(http.MethodGet, "/_emulator/faults", ``)
	var faults struct {
		Faults []emulator.Fault `json:"faults"`
	}
	if err := json.Unmarshal(list.Raw, &faults); err != nil {
		t.Fatal(err)
	}
	if n := len(faults.Faults); n != 3 || faults.Faults[0].Hits != 2 || faults.Faults[0].Delay.String() != "1ms" {
		t.Errorf("faults %+v", faults.Faults)
	}
	s.ask(http.MethodDelete, "/_emulator/faults/1", ``, 200)
	if got := s.do(http.MethodDelete, "/_emulator/faults/1", ``); got.Status != 404 {
		t.Errorf("removed twice: status %d", got.Status)
	}
	s.ask(http.MethodDelete, "/_emulator/faults", ``, 200)
	if n := len(s.Faults()); n != 0 {
		t.Errorf("%d faults left", n)
	}
	for _, bad := range []string{`{"stauts":500}`, `{"delay":"soon"}`, `{"status":1000}`, `[{"status":500},{"body":"xml"}]`, `7`} {
		s.ask(http.MethodPost, "/_emulator/faults", bad, 400)
	}
	if n := len(s.Faults()); n != 0 {
		t.Errorf("%d faults of a refused list were added", n)
	}
}

func TestControl_JournalAndCounters(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	for i := range 5 {
		s.post(publishPath, publish(fmt.Sprint(i), `{"n":1}`)).want(t, http.StatusOK, "")
	}
	page := s.ask(http.MethodGet, "/_emulator/journal?after=1&limit=2", ``, 200)
	if page["next"] != 3.0 || page["last"] != 5.0 {
		t.Errorf("page %v", page)
	}
	entries, _ := page["entries"].([]any)
	if len(entries) != 2 {
		t.Fatalf("%d entries", len(entries))
	}
	entry, _ := entries[0].(map[string]any)
	if entry["number"] != 2.0 || entry["key"] != "1" || entry["outcome"] != "accepted" || entry["body"] != publish("1", `{"n":1}`) {
		t.Errorf("entry %v", entry)
	}
	end := s.ask(http.MethodGet, "/_emulator/journal?after=5", ``, 200)
	if fmt.Sprint(end["entries"], end["next"]) != "[] 5" {
		t.Errorf("behind the last: %v", end)
	}
	for _, query := range []string{"after=x", "limit=0", "limit=x", "after=-1"} {
		s.ask(http.MethodGet, "/_emulator/journal?"+query, ``, 400)
	}
	counters := s.ask(http.MethodGet, "/_emulator/counters", ``, 200)
	if counters["requests"] != 5.0 || counters["accepted"] != 5.0 || fmt.Sprint(counters["statuses"]) != "map[200:5]" || fmt.Sprint(counters["routes"]) != "map[queue.publish:5]" {
		t.Errorf("counters %v", counters)
	}
	if got := s.ask(http.MethodGet, "/_emulator/healthz", ``, 200); got["ok"] != true {
		t.Errorf("health %v", got)
	}
	if got := s.do(http.MethodGet, "/_emulator/nothing", ``); got.Status != 404 {
		t.Errorf("an unknown route: status %d", got.Status)
	}
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	bad := emulator.Config{
		Queues: []string{"Orders"}, MaxKeys: -1, JournalEntries: -1, JournalBytes: -1,
		Settings: emulator.Settings{ConsumeKey: "things", MaxRetries: -1},
	}
	err := bad.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, name := range []string{"QUEUES", "MAX_KEYS", "JOURNAL_ENTRIES", "JOURNAL_BYTES", "CONSUME_KEY", "MAX_RETRIES"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is missing in:\n%v", name, err)
		}
	}
	if err := (emulator.Config{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("New took it")
		}
	}()
	emulator.New(bad)
}
