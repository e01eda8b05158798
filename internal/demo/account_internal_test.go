package demo

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/internal/golden"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// truth is a small world in which all is well: two ordering keys, a letter, a
// lost answer, a 429 and a message that came to the consumer twice.
func truth() facts {
	messages := []message{
		{"a1", ordersQueue, "a"},
		{"b1", ordersQueue, "b"},
		{"a2", ordersQueue, "a"},
		{"letter", lettersQueue, ""},
		{"a3", ordersQueue, "a"},
	}
	f := facts{
		sales: sales{
			committed: 5, rolledBack: 1, repeated: 1, orders: 4, messages: messages,
		},
		requests: []request{
			{key: "a1", digest: "da1", status: 429, outcome: emulator.Failed},
			{key: "a1", digest: "da1", status: 200, outcome: emulator.Accepted, message: "m1"},
			{key: "letter", digest: "dl", status: 200, outcome: emulator.Accepted, message: "m2"},
			{key: "a2", digest: "da2", status: 0, outcome: emulator.Accepted, message: "m3"},
			{key: "b1", digest: "db1", status: 200, outcome: emulator.Accepted, message: "m4"},
			{key: "a2", digest: "da2", status: 200, outcome: emulator.Replayed},
			{key: "a3", digest: "da3", status: 200, outcome: emulator.Accepted, message: "m5"},
		},
		consumed: 6, handled: 5, suppressed: 1,
		orderRows: 4, messageRows: 5,
		effects: map[string]int{}, marked: map[string]bool{},
		behind: 56, kills: killTimes,
	}
	for _, m := range messages {
		f.effects[m.key], f.marked[m.key] = 1, true
	}
	return f
}

// dropRequests removes the requests for a key.
func (f *facts) dropRequests(key string) {
	f.requests = slices.DeleteFunc(f.requests, func(r request) bool { return r.key == key })
}

// request returns the accepted request for a key.
func (f *facts) request(key string) *request {
	i := slices.IndexFunc(f.requests, func(r request) bool { return r.key == key && r.outcome == emulator.Accepted })
	return &f.requests[i]
}

func TestAccount_SeesWhatIsWrong(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		doctor func(*facts)
		want   []string // the lines that do not hold
	}{
		{"nothing", func(*facts) {}, nil},
		{"a lost key", func(f *facts) { f.dropRequests("b1") }, []string{"lost"}},
		{"a lost key in the middle of its ordering key", func(f *facts) { f.dropRequests("a2") }, []string{"lost"}},
		{"a refused key", func(f *facts) {
			r := f.request("b1")
			r.outcome, r.status, r.message = emulator.Refused, 400, ""
		}, []string{"requests", "lost"}},
		{"a phantom of a rolled back transaction", func(f *facts) {
			f.requests = append(f.requests, request{key: "gone", status: 200, outcome: emulator.Accepted, message: "m6"})
		}, []string{"phantom"}},
		{"a phantom that was only tried", func(f *facts) {
			f.requests = append(f.requests, request{key: "gone", status: 429, outcome: emulator.Failed})
		}, []string{"phantom"}},
		{"a swapped order", func(f *facts) {
			f.request("a1").message, f.request("a2").message = f.request("a2").message, f.request("a1").message
		}, []string{"out_of_order"}},
		{"the last of an ordering key first", func(f *facts) { f.request("a3").message = "m0" }, []string{"out_of_order"}},
		{"a missing mark", func(f *facts) { delete(f.marked, "a3") }, []string{"marked"}},
		{"a mark too many", func(f *facts) { f.marked["gone"] = true }, []string{"marked"}},
		{"a key accepted twice", func(f *facts) {
			f.requests = append(f.requests, request{key: "a1", digest: "da1", status: 200, outcome: emulator.Accepted, message: "m6"})
		}, []string{"accepted"}},
		{"other bytes under the same key", func(f *facts) { f.requests[5].digest = "other" }, []string{"repeats"}},
		{"a conflict", func(f *facts) {
			f.requests = append(f.requests, request{key: "a1", digest: "da1", status: 409, outcome: emulator.Conflicting})
		}, []string{"requests"}},
		{"an event handled twice", func(f *facts) { f.effects["a1"] = 2 }, []string{"handled"}},
		{"an event not handled", func(f *facts) { delete(f.effects, "a1") }, []string{"handled"}},
		{"an event that never happened", func(f *facts) { f.effects["gone"] = 1; f.handled++; f.consumed++ }, []string{"handled"}},
		{"a claim without effect", func(f *facts) { f.handled++; f.suppressed-- }, []string{"handled"}},
		{"a delivery that nobody knows", func(f *facts) { f.consumed++ }, []string{"consumed"}},
		{"a message still in the queue", func(f *facts) { f.left = 1 }, []string{"left"}},
		{"a message of a rolled back transaction in the table", func(f *facts) { f.messageRows++ }, []string{"messages_committed"}},
		{"an order without a row", func(f *facts) { f.orderRows-- }, []string{"transactions_committed"}},
		{"a slot that does not move", func(f *facts) { f.behind = slotLimit + 1 }, []string{"slot_behind"}},
		{"a relay that nobody killed", func(f *facts) { f.kills = 1 }, []string{"relay_kills"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := truth()
			tt.doctor(&f)
			account := &Account{Sections: settle(f)}
			if diff := cmp.Diff(tt.want, wrong(account)); diff != "" {
				t.Errorf("lines that do not hold (-want +got):\n%s", diff)
			}
			if account.Holds() != (tt.want == nil) {
				t.Errorf("Holds is %v", account.Holds())
			}
		})
	}
}

// wrong are the lines that do not hold.
func wrong(a *Account) (ids []string) {
	for _, section := range a.Sections {
		for _, line := range section {
			if line.Problem != "" {
				ids = append(ids, line.ID)
			}
		}
	}
	return ids
}

func TestAccount_ErrorNamesLineAndKey(t *testing.T) {
	t.Parallel()
	f := truth()
	f.dropRequests("b1")
	err := (&Account{Sections: settle(f)}).problem()
	if err == nil || !strings.Contains(err.Error(), "lost: 1: committed and never accepted, such as b1") {
		t.Errorf("error is %v", err)
	}
}

func TestAccount_MarshalJSON(t *testing.T) {
	t.Parallel()
	f := truth()
	f.dropRequests("b1")
	text, err := json.Marshal(&Account{Postgres: "18.4", Load: 15 * time.Second, Seed: 7, Sections: settle(f)})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Schema   int              `json:"schema_version"`
		Holds    bool             `json:"holds"`
		Seconds  float64          `json:"seconds"`
		Figures  map[string]int64 `json:"figures"`
		Problems []map[string]string
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Schema != 1 || got.Holds || got.Seconds != 15 || got.Figures["lost"] != 1 || got.Figures["accepted"] != 4 {
		t.Errorf("JSON is %s", text)
	}
	want := []map[string]string{{"figure": "lost", "problem": "committed and never accepted, such as b1"}}
	if diff := cmp.Diff(want, got.Problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestAccount_Print(t *testing.T) {
	t.Parallel()
	tests := []struct {
		golden string
		doctor func(*facts)
	}{
		{"holds.txt", func(*facts) {}},
		{"wrong.txt", func(f *facts) { f.dropRequests("b1"); f.consumed += 1_234_567 }},
	}
	for _, tt := range tests {
		t.Run(tt.golden, func(t *testing.T) {
			t.Parallel()
			f := truth()
			tt.doctor(&f)
			var got bytes.Buffer
			if err := (&Account{Sections: settle(f)}).Print(&got, false); err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, filepath.Join("testdata", tt.golden), got.String())
		})
	}
}

func TestAccount_PrintColours(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	if err := (&Account{Sections: settle(truth())}).Print(&got, true); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(got.String(), "\x1b[32mok\x1b[0m") {
		t.Errorf("no green ok in %q", got.String())
	}
}
