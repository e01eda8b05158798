package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Mood is how a queue of the benchmark behaves.
type Mood string

// Moods.
const (
	// Up accepts everything.
	Up Mood = "up"
	// Failing answers 503 to what is sent to the queue main, and accepts the
	// rest.
	Failing Mood = "failing"
	// Refusing has no listener: every connection is refused.
	Refusing Mood = "refusing"
)

// switchQueue is a queue that can be switched off, over real HTTP, and that
// keeps books of what it accepts.
type switchQueue struct {
	books   *books
	address string

	mu     sync.Mutex
	mood   Mood
	poison string // this key is answered 500
	server *http.Server
}

// ServeQueue serves the publish route of two queues, main and side, until ctx
// ends, as a process of its own. It prints two addresses on one line of out: of
// the queue and of what controls it.
func ServeQueue(ctx context.Context, out io.Writer) error {
	q := &switchQueue{books: newBooks(), mood: Up}
	if err := q.listen(); err != nil {
		return err
	}
	defer q.refuse()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "http://%s http://%s\n", q.address, listener.Addr())
	control := &http.Server{Handler: q.control()}
	context.AfterFunc(ctx, func() { _ = control.Close() })
	if err := control.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// listen begins to serve, each time at the same address.
func (q *switchQueue) listen() error {
	listener, err := q.bind()
	if err != nil {
		return err
	}
	q.address = listener.Addr().String()
	server := &http.Server{Handler: http.HandlerFunc(q.publish)}
	q.server = server
	go func() { _ = server.Serve(listener) }() // ends with Close
	return nil
}

// bind takes the address of before, or a free one. It is below the ports that
// the system gives to outgoing connections, so that nobody takes it while the
// queue refuses.
func (q *switchQueue) bind() (listener net.Listener, err error) {
	if q.address != "" {
		return net.Listen("tcp", q.address)
	}
	for range 100 {
		listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.IntN(12000))))
		if err == nil {
			return listener, nil
		}
	}
	return nil, err
}

// refuse closes the listener and every connection.
func (q *switchQueue) refuse() { _ = q.server.Close() }

// set changes the mood.
func (q *switchQueue) set(mood Mood) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := q.mood
	q.mood = mood
	switch {
	case mood == Refusing && before != Refusing:
		q.refuse()
	case mood != Refusing && before == Refusing:
		return q.listen()
	}
	return nil
}

// failure is the status with which a message is answered, 0 if it is accepted.
func (q *switchQueue) failure(queue, key string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.mood == Failing && queue == mainQueue:
		return http.StatusServiceUnavailable
	case key == q.poison:
		return http.StatusInternalServerError
	}
	return 0
}

// accepted is the answer to a message that was taken.
var accepted = []byte(`{"ok":true,"data":{"message_id":"msg_0123456789abcdef"},"error":null,"metadata":{"request_id":"0123456789abcdef"}}` + "\n")

func (q *switchQueue) publish(w http.ResponseWriter, req *http.Request) {
	q.books.request()
	var body struct {
		Key     string `json:"idempotency_key"`
		Queue   string `json:"queue"`
		Payload struct {
			At int64 `json:"at"`
		} `json:"payload"`
	}
	text, err := io.ReadAll(req.Body)
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	if err != nil {
		http.Error(w, "unreadable", http.StatusBadRequest)
		return
	}
	if status := q.failure(body.Queue, body.Key); status != 0 {
		http.Error(w, "switched off", status)
		return
	}
	var wait *Wait
	if body.Payload.At > 0 {
		wait = &Wait{At: body.Payload.At, Took: time.Now().UnixMicro() - body.Payload.At}
	}
	if err := q.books.accept(body.Key, wait); err != nil {
		http.Error(w, "unknown key", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(accepted)
}

// control is what the benchmark itself asks and orders.
func (q *switchQueue) control() http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }
	mux.HandleFunc("GET /counts", func(w http.ResponseWriter, _ *http.Request) { answer(w, q.books.copyCounts()) })
	mux.HandleFunc("GET /books", func(w http.ResponseWriter, _ *http.Request) { answer(w, q.books.copyAll()) })
	mux.HandleFunc("POST /mood/{mood}", func(w http.ResponseWriter, req *http.Request) {
		if err := q.set(Mood(req.PathValue("mood"))); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("POST /poison/{key}", func(w http.ResponseWriter, req *http.Request) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.poison = req.PathValue("key")
	})
	return mux
}
