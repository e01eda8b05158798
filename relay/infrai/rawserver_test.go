package infrai_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// listen starts a server that speaks HTTP by hand, or badly. Each connection is
// closed when serve returns, and all with the test.
func listen(t *testing.T, serve func(net.Conn)) (base string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveAll(t, listener, serve)
	return "http://" + listener.Addr().String()
}

// serveAll serves the connections of a listener until the test ends.
func serveAll(t *testing.T, listener net.Listener, serve func(net.Conn)) {
	t.Helper()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		open = map[net.Conn]bool{}
	)
	wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			wg.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
}

// readRequest reads one request and returns its body.
func readRequest(c net.Conn) (string, error) {
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(req.Body)
	return string(body), err
}
