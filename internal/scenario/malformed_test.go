package scenario_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
)

// garbler stands between a relay and its server, and breaks what the server says
// of inserted rows while it is told to.
type garbler struct {
	bad         atomic.Bool
	broken      atomic.Int64 // rows
	connections atomic.Int64
}

// Where a row begins in a message of the stream: behind the kind and three
// numbers of 64 bits.
const rowStart = 25

// breaks are ways in which a row can be wrong: behind its tag it has the number
// of its table, N, the number of its columns, and for each the kind, the length
// and the value.
var breaks = []func(row []byte) []byte{
	func(row []byte) []byte { binary.BigEndian.PutUint16(row[6:], 65535); return row },
	func(row []byte) []byte { binary.BigEndian.PutUint32(row[9:], 1<<31-1); return row },
	func(row []byte) []byte { binary.BigEndian.PutUint32(row[9:], 1<<32-2); return row },
	func(row []byte) []byte { binary.BigEndian.PutUint32(row[1:], 1); return row },
	func(row []byte) []byte { return row[:12] },
	func(row []byte) []byte { row[0] = '?'; return row },
}

// listen returns the address where the garbler waits for connections.
func (g *garbler) listen(t *testing.T, server string) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() { g.serve(ctx, client, server) })
		}
	})
	t.Cleanup(func() {
		stop()
		listener.Close()
		tasks.Wait()
	})
	return listener.Addr().String()
}

func (g *garbler) serve(ctx context.Context, client net.Conn, address string) {
	defer client.Close()
	g.connections.Add(1)
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { client.Close(); server.Close() })()
	var asking sync.WaitGroup
	asking.Go(func() {
		_, _ = io.Copy(server, client)
		server.Close()
	})
	g.answer(client, server)
	client.Close()
	asking.Wait()
}

// answer hands on one message after the other. The connection is not encrypted.
func (g *garbler) answer(client io.Writer, server io.Reader) {
	for {
		head := make([]byte, 5)
		if _, err := io.ReadFull(server, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(server, body); err != nil {
			return
		}
		if g.bad.Load() && head[0] == 'd' && len(body) > rowStart && body[0] == 'w' && body[rowStart] == 'I' {
			way := breaks[int(g.broken.Add(1))%len(breaks)]
			body = append(body[:rowStart:rowStart], way(body[rowStart:])...)
			binary.BigEndian.PutUint32(head[1:], uint32(len(body)+4))
		}
		if _, err := client.Write(slices.Concat(head, body)); err != nil {
			return
		}
	}
}

// SEC-04: the stream brings rows that are broken. The relay ends the connection
// and tries again, not too often, and does not get past them; once they are whole
// it goes on.
func TestSEC04_BrokenRows(t *testing.T) {
	t.Parallel()
	w := scenario.New(t).With(map[string]string{"RELAY_RECONNECT_MAX": "500ms", "RELAY_LOG_LEVEL": "info"})
	address, err := url.Parse(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	g := &garbler{}
	address.Host = g.listen(t, address.Host)
	w.Env["RELAY_REPLICATION_URL"] = address.String()
	p := plain(t, w.Env, "run")
	w.Insert(scenario.Message{Key: "whole", OrderingKey: "a"})
	w.Settle()

	g.bad.Store(true)
	w.Insert(scenario.Message{Key: "broken", OrderingKey: "a"})
	committed := w.WAL()
	w.Insert(scenario.Batch("behind", 20, "a", "b", "")...)
	told(t, p, "stream ended, will be opened again", "malformed message of the stream")
	broken, connections, began := g.broken.Load(), g.connections.Load(), time.Now()
	scenario.Throughout(t, 4*time.Second, func() error {
		select {
		case <-p.Done():
			return errors.New("the relay ended")
		default:
		}
		if confirmed := w.Confirmed(); confirmed >= committed {
			return fmt.Errorf("the confirmed flush %d has passed the broken row at %d", confirmed, committed)
		}
		return nil
	})
	// An attempt takes two, and comes after 250 milliseconds on average.
	n, span := g.connections.Load()-connections, time.Since(began)
	if float64(n) > 15*span.Seconds() {
		t.Errorf("%d connections in %s", n, span)
	}
	pgtest.Eventually(t, scenario.Patience, func() error {
		if g.broken.Load() == broken {
			return errors.New("it is not tried again")
		}
		return nil
	})
	if n := len(w.Published()); n != 1 {
		t.Errorf("%d requests, want the one of the first message", n)
	}
	g.bad.Store(false)
	w.Settle()
	if lines := strings.Count(p.Log().Text(), "panic"); lines > 0 {
		t.Errorf("a panic: %s", p.Log().Text())
	}
	if got := peak(t, p); got > memory {
		t.Errorf("the relay took %d MiB, want at most %d", got>>20, memory>>20)
	}
}
