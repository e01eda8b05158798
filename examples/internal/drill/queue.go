package drill

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/outbox-relay/outbox-relay/outbox/consumer"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// Queue is a queue that a drill needs.
type Queue struct {
	Name string
	// FIFO keeps all its messages in one order, at the relay as at Infrai.
	FIFO bool
	// DeadLetters is the queue for what its consumers give back more often than
	// MaxRetries; empty is none.
	DeadLetters string
	MaxRetries  int
}

// provision makes a queue as an operator does.
func (s *Stage) provision(q Queue) {
	s.Helper()
	args := []string{"queues", "provision", q.Name, "--yes"}
	if q.DeadLetters == "" {
		args = append(args, "--no-dead-letter-queue")
	} else {
		args = append(args, "--dead-letter-queue", q.DeadLetters, "--max-retries", strconv.Itoa(q.MaxRetries))
	}
	if q.FIFO {
		args = append(args, "--type", "fifo")
	}
	s.CLI(args...)
	if q.FIFO {
		s.CLI("queues", "set", q.Name, "ordering=queue")
	}
}

// Publish gives a message to the queue as somebody does who knows no outbox, and
// returns its message_id.
func (s *Stage) Publish(queue, key string, payload any) (messageID string) {
	s.Helper()
	body, err := json.Marshal(map[string]any{"idempotency_key": key, "payload": payload, "queue": queue})
	s.Must(err)
	status, answer := s.Post(s.QueueURL+"/v1/queue/publish", http.Header{"Authorization": {"Bearer " + apiKey}}, body)
	var taken struct {
		Data struct {
			MessageID string `json:"message_id"`
		}
	}
	if err := json.Unmarshal(answer, &taken); err != nil || taken.Data.MessageID == "" {
		s.Fatalf("publish to %s: status %d: %s", queue, status, answer)
	}
	return taken.Data.MessageID
}

// Accepted is how many messages a queue has taken in all, repeats not counted.
func (s *Stage) Accepted(queue string) int { return len(s.Queue.Accepted(queue)) }

// Left is how many messages a queue has that nobody has acked.
func (s *Stage) Left(queue string) int {
	s.Helper()
	n := s.numbers(queue)
	return n.Ready + n.Delayed + n.InFlight
}

// PassRetry lets the delay of messages that were nacked pass, if a queue has any:
// a worker may fail for once, as when it is faster than the commit that it is told
// of is visible to it.
func (s *Stage) PassRetry(queue string, delay time.Duration) {
	s.Helper()
	if s.numbers(queue).Delayed > 0 {
		s.Pass(delay)
	}
}

// numbers are the messages of a queue by where they are.
type numbers struct {
	Ready, Delayed int
	InFlight       int `json:"in_flight"`
}

func (s *Stage) numbers(queue string) numbers {
	s.Helper()
	request, err := http.NewRequestWithContext(s.ctx, http.MethodGet, s.QueueURL+"/v1/queue/stats/"+queue, http.NoBody)
	s.Must(err)
	request.Header.Set("Authorization", "Bearer "+apiKey)
	response, err := client.Do(request)
	s.Must(err)
	defer response.Body.Close()
	var stats struct{ Data numbers }
	s.Must(json.NewDecoder(response.Body).Decode(&stats))
	return stats.Data
}

// ConsumerQueue is a queue as a consumer gets it.
func (s *Stage) ConsumerQueue(name string) consumer.Queue {
	return consumer.Queue{BaseURL: s.QueueURL, Name: name, APIKey: func() string { return apiKey }}
}

// AwaitAccepted waits until a queue has taken so many messages.
func (s *Stage) AwaitAccepted(queue string, want int) {
	s.Helper()
	s.Await(func(context.Context) error {
		if n := s.Accepted(queue); n != want {
			return fmt.Errorf("queue %s has taken %d messages, want %d", queue, n, want)
		}
		return nil
	})
}

// Answers is how many answers of this kind the queue has given to a call, such as
// queue.ack.
func (s *Stage) Answers(route, queue string, outcome emulator.Outcome) (n int) {
	for _, e := range s.Queue.Journal().Entries(0, int(s.Queue.Journal().Last())) {
		if e.Route == route && e.Queue == queue && e.Outcome == outcome {
			n++
		}
	}
	return n
}

// AwaitAnswers waits until the queue has given so many.
func (s *Stage) AwaitAnswers(route, queue string, outcome emulator.Outcome, want int) {
	s.Helper()
	s.Await(func(context.Context) error {
		if n := s.Answers(route, queue, outcome); n != want {
			return fmt.Errorf("%s of queue %s: %d times %s, want %d", route, queue, n, outcome, want)
		}
		return nil
	})
}

// Fault makes the queue misbehave, until the function that it returns is called.
func (s *Stage) Fault(f emulator.Fault) (end func()) {
	s.Helper()
	id, err := s.Queue.AddFault(f)
	s.Must(err)
	return func() { s.Queue.RemoveFault(id) }
}

// Post sends a request and returns the answer. It ends the drill if there is
// none.
func (s *Stage) Post(url string, header http.Header, body []byte) (status int, answer []byte) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, Patience)
	defer cancel()
	status, answer, err := s.TryPost(ctx, url, header, body)
	s.Must(err)
	return status, answer
}

// TryPost is Post for requests that may stay without an answer. It may be called
// from any goroutine.
func (s *Stage) TryPost(ctx context.Context, url string, header http.Header, body []byte) (status int, answer []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if header != nil {
		request.Header = header.Clone()
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// client keeps no connection, so that none is left at the end.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
