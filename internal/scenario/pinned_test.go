package scenario_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
)

// slotOf is what status says of the slot.
type slotOf struct {
	Slot struct {
		Retained    int64 `json:"retained_bytes"`
		Unconfirmed int64 `json:"unconfirmed_bytes"`
	} `json:"slot"`
}

func askStatus(t *testing.T, w *scenario.World) (s slotOf) {
	t.Helper()
	p := relaybin.Run(t, w.Env, "status", "--json")
	p.AwaitExit(t, 0)
	if err := json.Unmarshal([]byte(p.Stdout()), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// OUT-07: a transaction of somebody else stays open and keeps the WAL that came
// since. Delivery does not mind, status tells retained from unconfirmed WAL, a
// restart neither stalls nor sends anything twice, and with the transaction the
// WAL goes.
func TestOUT07_AnOldTransactionKeepsTheWAL(t *testing.T) {
	t.Parallel()
	const noise = 24 << 20
	cluster := pgtest.New(t)
	w := scenario.On(t, cluster.Migrated(t))
	first := process(t, w, nil)
	w.Insert(scenario.Batch("before", 20, "a", "b", "")...)
	w.Settle()
	w.Exec(`create table noise (text text)`)
	w.Exec(`alter table noise alter text set storage external`) // not compressed
	old, err := w.Connect().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Exec(t.Context(), `insert into noise values ('old')`); err != nil { // it has a number from here on
		t.Fatal(err)
	}
	makeNoise := func(tag string) {
		for i := range 6 {
			w.Exec(`insert into noise select repeat(md5(i::text), 64) from generate_series(1, $1) i`, noise/6/2048)
			w.Insert(scenario.Batch(fmt.Sprintf("%s-%d", tag, i), 20, "a", "b", "")...)
		}
	}
	makeNoise("during")
	w.Settle()
	var s slotOf
	pgtest.Eventually(t, scenario.Patience, func() error {
		w.Exec(`checkpoint`) // the server looks at what it may forget
		if s = askStatus(t, w); s.Slot.Unconfirmed > 4<<20 || s.Slot.Retained < noise {
			return fmt.Errorf("status says that %d bytes are unconfirmed and %d retained, want few and at least %d",
				s.Slot.Unconfirmed, s.Slot.Retained, noise)
		}
		return nil
	})

	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	second := process(t, w, nil)
	makeNoise("after")
	w.Settle()
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the restart took %s", took)
	}
	sessions := 0
	for _, line := range second.Log().Lines() {
		if line.Fields["msg"] == "session began" {
			sessions++
		}
	}
	if sessions != 1 {
		t.Errorf("%d sessions after the restart, want 1", sessions)
	}
	for _, m := range w.Keys() {
		if got := w.Requests(m.Key); got != 1 {
			t.Errorf("%d requests for %s, want 1", got, m.Key)
		}
	}

	if err := old.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	pgtest.Eventually(t, scenario.Patience, func() error {
		w.Exec(`checkpoint`)
		w.Insert(scenario.Message{Key: fmt.Sprintf("last-%d", time.Now().UnixNano())})
		if s = askStatus(t, w); s.Slot.Retained >= noise/2 {
			return fmt.Errorf("%d bytes are retained still", s.Slot.Retained)
		}
		return nil
	})
	w.Settle()
}
