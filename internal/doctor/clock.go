package doctor

import (
	"context"
	"fmt"
	"time"
)

// mostSkew is what clocks may differ by. The relay measures ages and due times
// by the server's clock, and timeouts by its own.
const mostSkew = time.Second

// clock compares this machine's clock with the server's, as of the middle of the
// question.
func clock(ctx context.Context, p *patient) (finding, error) {
	asked := time.Now()
	var server time.Time
	if err := p.conn.QueryRow(ctx, `select clock_timestamp()`).Scan(&server); err != nil {
		return finding{}, err
	}
	return skew(server, asked, time.Now()), nil
}

// skew knows the difference only up to half of the time that the answer took.
func skew(server, asked, answered time.Time) finding {
	half := answered.Sub(asked) / 2
	ahead := server.Sub(asked.Add(half)).Round(time.Millisecond)
	if ahead.Abs() <= mostSkew+half {
		return pass(fmt.Sprintf("the server's is ahead by %v", ahead))
	}
	return finding{
		status: Warn, observed: fmt.Sprintf("the server's is ahead by %v", ahead),
		message: "the clocks of this machine and of the server differ: latencies and ages in logs and metrics are wrong by it",
		remedy:  "let a time service set both clocks",
	}
}
