package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// ServeSink serves the least that a client of the queue needs until ctx ends:
// it reads each request and accepts it, after a delay. It prints its address as
// the first line on out. It is the limit against which the relay is held, and
// runs as a process of its own, as a queue would.
func ServeSink(ctx context.Context, delay time.Duration, out io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	answer := []byte(`{"ok":true,"data":{"message_id":"msg_0123456789abcdef"},"error":null,"metadata":{"request_id":"0123456789abcdef"}}` + "\n")
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		if delay > 0 {
			<-time.After(delay)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	})}
	fmt.Fprintln(out, "http://"+listener.Addr().String())
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// httpAlone is the speed of Go's HTTP client and server alone: as many workers
// as the relay has requests in flight post bodies of the same size.
func httpAlone(ctx context.Context, url string, workers, requests int) (time.Duration, error) {
	body := []byte(`{"idempotency_key":"bench-1-1","payload":{"fill":"` + strings.Repeat("x", 380) + `","n":1},"queue":"bench"}` + "\n")
	transport := &http.Transport{MaxIdleConnsPerHost: workers, MaxConnsPerHost: workers, DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	post := func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/queue/publish", bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer bench")
		req.Header.Set("Idempotency-Key", "bench-1-1")
		answer, err := client.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		return errors.Join(err, answer.Body.Close())
	}
	work := make(chan struct{}, requests)
	for range requests {
		work <- struct{}{}
	}
	close(work)
	var group sync.WaitGroup
	failed := make(chan error, workers)
	began := time.Now()
	for range workers {
		group.Go(func() {
			for range work {
				if err := post(); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	took := time.Since(began)
	select {
	case err := <-failed:
		return 0, err
	default:
		return took, nil
	}
}
