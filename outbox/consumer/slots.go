package consumer

import (
	"context"
	"time"
)

// take waits for a free slot and takes all that are free, as far as one request
// can ask for. It returns 0 if ctx has ended.
func take(ctx context.Context, slots chan struct{}) int {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for taken := 1; taken < mostConsumed; taken++ {
		select {
		case slots <- struct{}{}:
		default:
			return taken
		}
	}
	return mostConsumed
}

// mostConsumed is what the queue is thought to give at once.
const mostConsumed = 100

func give(slots chan struct{}, n int) {
	for range n {
		<-slots
	}
}

// grace returns a context that ends d after ctx does.
func grace(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if sleep(work, d) {
			cancel()
		}
	})
	return work, func() { stop(); cancel() }
}
