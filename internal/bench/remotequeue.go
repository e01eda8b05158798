package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// remoteQueue is a [switchQueue] in a process of its own.
type remoteQueue struct {
	url     string // where messages go
	control string
	stop    func()
}

// startQueue starts the program at a path as a queue that can be switched off.
func startQueue(ctx context.Context, path string) (*remoteQueue, error) {
	p, err := startProgram(ctx, path, nil, nil, true, "bench", "queue")
	if err != nil {
		return nil, err
	}
	url, control, _ := strings.Cut(p.line, " ")
	return &remoteQueue{url: url, control: control, stop: p.stop}, nil
}

// set changes the mood.
func (q *remoteQueue) set(ctx context.Context, mood Mood) error {
	return q.call(ctx, http.MethodPost, "/mood/"+string(mood), nil)
}

// refuseKey makes the queue answer 500 to one key, from now on and instead of
// an earlier one.
func (q *remoteQueue) refuseKey(ctx context.Context, key string) error {
	return q.call(ctx, http.MethodPost, "/poison/"+key, nil)
}

func (q *remoteQueue) counts(ctx context.Context) (c Counts, err error) {
	return c, q.call(ctx, http.MethodGet, "/counts", &c)
}

func (q *remoteQueue) books(ctx context.Context) (b Books, err error) {
	return b, q.call(ctx, http.MethodGet, "/books", &b)
}

func (q *remoteQueue) call(ctx context.Context, method, path string, into any) error {
	// A machine that is busy with a benchmark may take its time.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, q.control+path, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("%s: %s: %s", path, answer.Status, text)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(into)
}
