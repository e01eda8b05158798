package pagetest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// planned is what the page answers a machine.
type planned struct {
	Act      string `json:"act"`
	Done     bool   `json:"done"`
	Count    int    `json:"count"`
	Matching struct {
		Count int `json:"count"`
	} `json:"matching"`
	Queue string `json:"queue"`
}

// act asks for an act with the token, as a program does.
func act(t *testing.T, url, path string, form url.Values) (p planned) {
	t.Helper()
	body := ask(t, http.MethodPost, url+path, form)
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("%s: %v: %s", path, err, body)
	}
	return p
}

func ask(t *testing.T, method, url string, form url.Values) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if method == http.MethodPost {
		r.Header.Set("Accept", "application/json")
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// dies makes n dead letters, and returns their ids.
func dies(t *testing.T, w *scenario.World, prefix string, n int) (ids []string) {
	t.Helper()
	w.Fault(emulator.Fault{Route: "queue.publish", KeyPrefix: prefix, Status: 422, Count: n})
	for _, m := range scenario.Batch(prefix, n) {
		w.Insert(m)
		id := w.Count(`select id from outbox.messages where key = $1`, m.Key)
		pgtest.Eventually(t, patience, func() error {
			if w.Count(`select count(*) from outbox.dead_letters where message_id = $1`, id) != 1 {
				return fmt.Errorf("message %d is no dead letter", id)
			}
			return nil
		})
		ids = append(ids, fmt.Sprint(id))
	}
	return ids
}

// Many dead letters are counted first, and nothing has changed; then those that
// were counted are changed, and no others.
func TestActs_CountFirst(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	p, address := start(t, w)
	ids := strings.Join(dies(t, w, "first", 3), ",")
	filter := url.Values{"queue": {scenario.QueueName}, "reason": {"refused"}}
	want := planned{Act: "discard", Count: 3}
	want.Matching.Count = 3
	if diff := cmp.Diff(want, act(t, address, "/dead-letters/discard", filter)); diff != "" {
		t.Errorf("plan: %s", diff)
	}
	if n := w.Count(`select count(*) from outbox.dead_letters where reason = 'refused'`); n != 3 {
		t.Errorf("%d dead letters after they were counted", n)
	}
	dies(t, w, "later", 1) // matches, and was not counted

	confirmed := url.Values{"confirm": {"yes"}, "ids": {ids}, "why": {"the shop\nhas closed"}}
	if diff := cmp.Diff(planned{Act: "discard", Done: true, Count: 3}, act(t, address, "/dead-letters/discard", confirmed)); diff != "" {
		t.Errorf("discard: %s", diff)
	}
	if n := w.Count(`select count(*) from outbox.dead_letters where reason = 'discarded' and last_error like 'the shop has closed (was refused%'`); n != 3 {
		t.Errorf("%d were discarded with the reason", n)
	}
	line := p.AwaitLog(t, "change by an operator")
	if line.Fields["act"] != "discard" || line.Fields["count"] != 3.0 || line.Fields["by"] != "token" || line.Fields["why"] != "the shop has closed" {
		t.Errorf("the log says %v", line.Fields)
	}

	if got := act(t, address, "/dead-letters/redrive", url.Values{"queue": {scenario.QueueName}}); got.Count != 1 || got.Done {
		t.Errorf("discarded ones count as well: %+v", got)
	}
	w.Forget("first-0", "first-1", "first-2")
}

// A queue is paused and goes on again.
func TestActs_Queues(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	p, address := start(t, w)
	queue := url.Values{"queue": {scenario.QueueName}, "confirm": {"yes"}}
	paused := func() bool { return w.Count(`select count(*) from outbox.queues where paused`) == 1 }
	act(t, address, "/queues/pause", url.Values{"queue": {scenario.QueueName}})
	if paused() {
		t.Error("paused before it was confirmed")
	}
	why := url.Values{"queue": {scenario.QueueName}, "confirm": {"yes"}, "why": {"the shop\nhas closed"}}
	if got := act(t, address, "/queues/pause", why); !got.Done || !paused() {
		t.Errorf("pause: %+v, paused: %t", got, paused())
	}
	if n := w.Count(`select count(*) from outbox.queues where paused_by like '%, on the page' and paused_reason = 'the shop has closed'`); n != 1 {
		t.Error("the row does not say who paused the queue, and why")
	}
	if line := p.AwaitLog(t, "change by an operator"); line.Fields["act"] != "pause" || line.Fields["why"] != "the shop has closed" {
		t.Errorf("the log says %v", line.Fields)
	}
	if got := act(t, address, "/queues/resume", queue); !got.Done || paused() {
		t.Errorf("resume: %+v, paused: %t", got, paused())
	}
	long := url.Values{"queue": {scenario.QueueName}, "confirm": {"yes"}, "why": {strings.Repeat("x", 201)}}
	if body := ask(t, http.MethodPost, address+"/queues/pause", long); !strings.Contains(body, "one line of at most 200 characters") || paused() {
		t.Errorf("a long reason: %s", body)
	}
	body := ask(t, http.MethodPost, address+"/queues/pause", url.Values{"queue": {"no such name!"}, "confirm": {"yes"}})
	if !strings.Contains(body, "the name of a queue has at most 63 characters") {
		t.Errorf("an impossible name: %s", body)
	}
}

// What somebody with psql has stopped is told with who, when and why, and a new
// reason as well.
func TestActs_TellOfAPauseByHand(t *testing.T) {
	t.Parallel()
	w := scenario.New(t)
	p, address := start(t, w)
	w.Insert(scenario.Message{Key: "m"})
	w.AwaitAccepted()
	tells := func(want string) {
		t.Helper()
		pgtest.Eventually(t, patience, func() error {
			if body := ask(t, http.MethodGet, address+"/readyz", nil); !strings.Contains(body, want) {
				return fmt.Errorf("no %q in %s", want, body)
			}
			return nil
		})
	}
	w.Exec(`insert into outbox.queues (queue, paused) values ('` + scenario.QueueName + `', true)`)
	tells(" UTC by postgres; its messages wait")
	line := p.AwaitLog(t, "settings of a queue changed")
	if about, _ := line.Fields["settings"].(map[string]any); about["paused_by"] != "postgres" || about["paused_at"] == nil {
		t.Errorf("the log says %v", line.Fields)
	}
	w.Exec(`update outbox.queues set paused_reason = 'ticket 8'`)
	tells(" UTC by postgres: ticket 8; its messages wait")
	w.Exec(`update outbox.queues set paused = false`)
	pgtest.Eventually(t, patience, func() error {
		if body := ask(t, http.MethodGet, address+"/readyz", nil); strings.Contains(body, "paused") {
			return fmt.Errorf("still paused: %s", body)
		}
		return nil
	})
}

// SEC-05: the page shows no payload, unless a setting allows it.
func TestActs_Payloads(t *testing.T) {
	t.Parallel()
	const said = `{"iban": "of a customer"}`
	for shows, name := range map[bool]string{false: "hidden", true: "shown"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := scenario.New(t).With(map[string]string{"RELAY_ADMIN_SHOW_PAYLOADS": fmt.Sprint(shows)})
			p, address := start(t, w)
			w.Fault(emulator.Fault{Route: "queue.publish", Key: "private", Status: 422})
			w.Insert(scenario.Message{Key: "private", Payload: said})
			seen := awaitLetter(t, w, address)
			if strings.Contains(seen, "of a customer") != shows {
				t.Errorf("the page of the dead letter: %s", seen)
			}
			for _, path := range []string{"/", "/dead-letters", "/status"} {
				if body := ask(t, http.MethodGet, address+path, nil); strings.Contains(body, "of a customer") {
					t.Errorf("%s shows the payload", path)
				}
			}
			stopAndCheck(t, p, "of a customer")
		})
	}
}

// awaitLetter returns the page of the only dead letter.
func awaitLetter(t *testing.T, w *scenario.World, address string) (page string) {
	t.Helper()
	pgtest.Eventually(t, patience, func() error {
		if w.Count(`select count(*) from outbox.dead_letters`) != 1 {
			return fmt.Errorf("no dead letter")
		}
		return nil
	})
	id := w.Count(`select message_id from outbox.dead_letters`)
	return ask(t, http.MethodGet, fmt.Sprintf("%s/dead-letters/%d", address, id), nil)
}

// stopAndCheck ends the relay, whose log must not have this text.
func stopAndCheck(t *testing.T, p *relaybin.Process, secret string) {
	t.Helper()
	if _, err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(p.Log().Text(), secret) {
		t.Error("the log has the payload")
	}
}
