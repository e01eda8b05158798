package scenario_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/scenario"
)

// Poll mode: the promises on a server that writes no logical WAL.

// polling makes the world's relays poll.
func polling(w *scenario.World) *scenario.World {
	return w.With(map[string]string{"RELAY_MODE": "poll", "RELAY_POLL_INTERVAL": "20ms"})
}

// settlePoll waits until every committed message is accepted and marked, and
// makes all checks. Order is that of the ids.
func settlePoll(t *testing.T, w *scenario.World) {
	t.Helper()
	w.AwaitAccepted()
	w.AwaitMarked()
	w.NoPhantom()
	w.Same()
	first := map[string]uint64{}
	for _, m := range w.Queue.Accepted("") {
		if first[m.Key] == 0 {
			first[m.Key] = m.Sequence
		}
	}
	rows, err := w.Conn.Query(context.Background(), `select key, ordering_key from outbox.messages where ordering_key is not null order by id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	last := map[string]string{}
	for rows.Next() {
		var key, lane string
		if err := rows.Scan(&key, &lane); err != nil {
			t.Fatal(err)
		}
		if before := last[lane]; before != "" && first[key] < first[before] {
			t.Errorf("ordering key %q: %q was accepted before %q, which has a lower id", lane, key, before)
		}
		last[lane] = key
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
}

// APP-01 by polling: whatever way a transaction takes.
func TestPoll_Promise1_ExistsExactlyWhenCommitted(t *testing.T) {
	t.Parallel()
	w := polling(scenario.New(t))
	w.Start()
	const writers, rounds = 10, 60
	seeds := seeded(t)
	var group sync.WaitGroup
	for writer := range writers {
		random := rand.New(rand.NewPCG(seeds.Uint64(), 0))
		conn := w.Connect()
		group.Go(func() {
			for round := range rounds {
				oneTransaction(t, w, conn, random, fmt.Sprintf("w%d-%d", writer, round))
			}
		})
	}
	group.Wait()
	settlePoll(t, w)
}
