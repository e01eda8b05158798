package scenario

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// writeInterval is the pause of a writer between two messages.
const writeInterval = 20 * time.Millisecond

// Writers commit messages, each under an ordering key of its own, until they
// are told to stop. They outlive a server that restarts: a connection that
// breaks is replaced, and a commit whose answer was lost is looked up.
func (w *World) Writers(n int) (stop func()) {
	writing, enough := context.WithCancel(context.Background())
	knowing, giveUp := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { w.write(writing, knowing, fmt.Sprintf("writer%d", i)) })
	}
	w.t.Cleanup(func() { // of a test that failed: the server may be down for good
		enough()
		giveUp()
		group.Wait()
	})
	return func() {
		enough()
		group.Wait()
	}
}

// write writes until writing ends, and then until it is known what became of
// the last message, or knowing ends.
func (w *World) write(writing, knowing context.Context, name string) {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close(context.Background())
		}
	}()
	ticker := time.NewTicker(writeInterval)
	defer ticker.Stop()
	var doubt *Message // its commit may have happened
	for n := 0; ; {
		select {
		case <-ticker.C:
		case <-knowing.Done():
			return
		}
		if writing.Err() != nil && doubt == nil {
			return
		}
		if conn == nil || conn.IsClosed() {
			var err error
			if conn, err = pgx.Connect(context.Background(), w.URL); err != nil {
				conn = nil
				continue
			}
		}
		if doubt != nil {
			if err := w.lookUp(conn, *doubt); err == nil {
				doubt = nil
			}
			continue
		}
		m := Message{Key: fmt.Sprintf("%s-%d", name, n), OrderingKey: name}
		n++
		if err := w.TryCommit(conn, m); err != nil {
			doubt = &m
		}
	}
}

// lookUp finds out whether a message was committed.
func (w *World) lookUp(conn *pgx.Conn, m Message) error {
	var found bool
	err := conn.QueryRow(context.Background(), `select exists (select from outbox.messages where key = $1)`, m.Key).Scan(&found)
	if err == nil && found {
		w.Committed(m)
	}
	return err
}
