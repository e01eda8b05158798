package emulator_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

func TestServe_EndsWithTheContext(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() {
		served <- emulator.Serve(ctx, listener, emulator.Config{Queues: []string{"orders"}}, zap.NewNop())
	}()
	base := "http://" + listener.Addr().String()

	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	for _, client := range []*http.Client{{Transport: &http.Transport{}}, {Transport: transport}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/_emulator/healthz", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("health over %s: %d", resp.Proto, resp.StatusCode)
		}
		client.CloseIdleConnections()
	}
	cancel()
	if err := <-served; err != nil {
		t.Errorf("a stop is an error: %v", err)
	}
}

func TestListenAndServe_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	if err := emulator.ListenAndServe(t.Context(), "127.0.0.1:0", emulator.Config{MaxKeys: -1}, zap.NewNop()); err == nil {
		t.Error("bad settings were taken")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := emulator.ListenAndServe(t.Context(), listener.Addr().String(), emulator.Config{}, zap.NewNop()); err == nil {
		t.Error("an address that is taken was taken")
	}
}
