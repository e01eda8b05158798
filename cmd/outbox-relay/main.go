// Command outbox-relay moves committed rows of an outbox table to the Infrai
// queue, and helps the people who run it.
//
// Settings come from the environment only; `outbox-relay --help` lists the
// verbs and the exit codes.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"go.uber.org/zap"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// From the first signal on the next one has its usual effect: it ends a
	// process whose drain somebody does not want to wait for.
	context.AfterFunc(ctx, stop)

	// The HTTP library writes to the standard log what a broken server sent, which
	// may repeat a payload.
	zap.RedirectStdLog(zap.NewNop())

	err := run(ctx, os.Args[1:], os.Environ(), streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	report(os.Stderr, err)
	os.Exit(exitCode(err))
}
