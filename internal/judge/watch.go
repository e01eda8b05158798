package judge

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/waits"
)

// watcher judges on the way.
type watcher struct {
	run *run

	mu      sync.Mutex
	backlog backlog
	caught  []moment // when each queue had caught up, since it is well; 0 if it has not

	samples  []sample // of the last minutes
	slotTold moment   // the calm in which the slot was found behind
	holder   string
	rounds   int
}

const (
	watchPause = 500 * time.Millisecond
	// slowAnswer of the server to the judge means that the machine has no time.
	slowAnswer = 1500 * time.Millisecond
)

// watch judges until ctx ends.
func (r *run) watch(ctx context.Context) {
	for waits.Sleep(ctx, watchPause) {
		r.watcher.look(ctx)
	}
}

// look judges what can be seen now.
func (w *watcher) look(ctx context.Context) {
	r := w.run
	r.readJournal()
	r.relays.measure()
	w.findBehind()
	if w.rounds++; w.rounds%2 == 0 {
		begun := time.Now()
		err := r.ask(ctx, w.lookAtServer)
		if took := time.Since(begun); err == nil && took > slowAnswer {
			r.history.stalled("the server answered slowly", took)
		}
	}
	if w.rounds%10 == 0 {
		r.ledger.checkOrder()
	}
	r.tellCases(ctx)
}

func (w *watcher) lookAtServer(ctx context.Context, conn *pgx.Conn) error {
	if err := w.lookAtSlot(ctx, conn); err != nil {
		return err
	}
	return w.run.watchMarks(ctx, conn)
}

// findBehind looks which queues have caught up since they are well, and which
// messages wait in those that had.
func (w *watcher) findBehind() {
	r := w.run
	now := r.report.moment(time.Now())
	calm := make([]moment, len(queues))
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range queues {
		if calm[i] = r.history.calmSince(sending(i), now); w.caught[i] < calm[i] {
			w.caught[i] = 0
		}
	}
	w.backlog = r.ledger.behind(now, w.caught)
	for i := range queues {
		if w.caught[i] == 0 && w.backlog.waiting[i] == 0 && now-calm[i] > r.ledger.scaled(waitMoment) {
			w.caught[i] = now
		}
	}
}
