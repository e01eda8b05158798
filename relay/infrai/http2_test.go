package infrai_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/outbox-relay/outbox-relay/relay/infrai"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// goingAway is a server of HTTP/2 that says GOAWAY after so many requests of a
// connection, and does not answer the request that came last.
type goingAway struct {
	after int
	code  atomic.Uint32 // of the next GOAWAY; the ones behind it are NO_ERROR

	mu     sync.Mutex
	bodies map[string][]string // by key
	said   int
}

// stream is a request that is coming in.
type stream struct {
	key  string
	body bytes.Buffer
}

// serve speaks with one client.
func (g *goingAway) serve(c net.Conn) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := readFull(c, preface); err != nil {
		return
	}
	framer := http2.NewFramer(c, c)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if framer.WriteSettings() != nil {
		return
	}
	streams := map[uint32]*stream{}
	for answered, last := 0, uint32(0); ; {
		f, err := framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = framer.WritePing(true, f.Data)
			}
		case *http2.MetaHeadersFrame:
			s := &stream{}
			for _, field := range f.Fields {
				if field.Name == "idempotency-key" {
					s.key = field.Value
				}
			}
			streams[f.StreamID] = s
		case *http2.DataFrame:
			s := streams[f.StreamID]
			s.body.Write(f.Data())
			if !f.StreamEnded() {
				continue
			}
			if answered >= g.after {
				g.sayGoAway(framer, last)
				continue // the client closes once its other requests are done
			}
			g.answer(framer, f.StreamID, s)
			answered, last = answered+1, max(last, f.StreamID)
		}
	}
}

func (g *goingAway) sayGoAway(framer *http2.Framer, last uint32) {
	g.mu.Lock()
	g.said++
	g.mu.Unlock()
	_ = framer.WriteGoAway(last, http2.ErrCode(g.code.Swap(uint32(http2.ErrCodeNo))), []byte("deploy"))
}

func (g *goingAway) answer(framer *http2.Framer, id uint32, s *stream) {
	g.mu.Lock()
	g.bodies[s.key] = append(g.bodies[s.key], s.body.String())
	g.mu.Unlock()
	var head bytes.Buffer
	e := hpack.NewEncoder(&head)
	_ = e.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head.Bytes(), EndHeaders: true})
	_ = framer.WriteData(id, true, []byte(accepted))
}

func readFull(c net.Conn, b []byte) (int, error) {
	for n := 0; n < len(b); {
		m, err := c.Read(b[n:])
		if err != nil {
			return n, err
		}
		n += m
	}
	return len(b), nil
}

// HTTP-04: a deploy of the queue says GOAWAY while requests are on their way.
// They are sent again whole, and no row pays for it.
func TestPublish_SurvivesGoAway(t *testing.T) {
	t.Parallel()
	g := &goingAway{after: 30, bodies: map[string][]string{}}
	g.code.Store(uint32(http2.ErrCodeEnhanceYourCalm))
	p := newPublisher(t, settings(serveTLS(t, g.serve)))

	const rows, workers = 600, 16
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for i := worker; i < rows; i += workers {
				untilAccepted(t, p, message(fmt.Sprint("row:", i)))
			}
		})
	}
	wg.Wait()

	g.mu.Lock()
	defer g.mu.Unlock()
	if g.said < rows/g.after/2 {
		t.Errorf("GOAWAY was said %d times: the fault did not happen", g.said)
	}
	for i := range rows {
		row := message(fmt.Sprint("row:", i))
		want, _ := infrai.AppendBody(nil, row)
		bodies := g.bodies[row.Key]
		if len(bodies) == 0 {
			t.Errorf("%s did not arrive", row.Key)
		}
		for _, body := range bodies {
			if body != string(want) {
				t.Errorf("%s arrived as %q", row.Key, body)
			}
		}
	}
}

// serveTLS starts a server that offers nothing but HTTP/2, with the
// certificate that TestMain made known.
func serveTLS(t *testing.T, serve func(net.Conn)) (base string) {
	t.Helper()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: secure.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		t.Fatal(err)
	}
	serveAll(t, listener, serve)
	return "https://" + listener.Addr().String()
}

// HTTP/2 is used where it is offered, and a few connections carry everything.
func TestPublish_UsesHTTP2(t *testing.T) {
	t.Parallel()
	queue := emulator.New(emulator.Config{Queues: []string{"orders"}})
	web := httptest.NewUnstartedServer(queue)
	web.EnableHTTP2 = true
	web.StartTLS()
	t.Cleanup(web.Close)
	p := newPublisher(t, settings(web.URL))
	for i := range 20 {
		if _, err := p.Publish(t.Context(), message(fmt.Sprint("k", i))); err != nil {
			t.Fatal(err)
		}
	}
	connections := map[string]bool{}
	for _, e := range queue.Journal().Entries(0, 0) {
		connections[e.Connection] = true
		if !strings.HasPrefix(e.Proto, "HTTP/2") {
			t.Errorf("request %d came with %s", e.Number, e.Proto)
		}
	}
	if len(connections) != 1 {
		t.Errorf("%d connections, want 1", len(connections))
	}
}

// Few connections are enough for many workers, and none waits for ever.
func TestPublish_SharesConnectionsOfHTTP2(t *testing.T) {
	t.Parallel()
	queue := emulator.New(emulator.Config{Queues: []string{"orders"}})
	web := httptest.NewUnstartedServer(queue)
	web.EnableHTTP2 = true
	web.StartTLS()
	t.Cleanup(web.Close)
	cfg := settings(web.URL)
	cfg.MaxConnections = 2
	p := newPublisher(t, cfg)
	const workers, each = 64, 10
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for i := range each {
				if _, err := p.Publish(t.Context(), message(fmt.Sprint(worker, ":", i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := queue.Counters().Accepted; n != workers*each {
		t.Errorf("%d accepted, want %d", n, workers*each)
	}
}
