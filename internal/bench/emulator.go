package bench

import (
	"context"
	"fmt"
	"io"
	"net"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// ServeEmulator serves the emulated queue until ctx ends, without a journal and
// without keeping messages, so that memory stays flat whatever is sent. It
// prints its address as the first line on out.
func ServeEmulator(ctx context.Context, log *zap.Logger, out io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "http://"+listener.Addr().String())
	cfg := emulator.Config{Queues: []string{"bench"}, Discard: true}
	cfg.Settings.Journal = "off"
	return emulator.Serve(ctx, listener, cfg, log)
}
