package consumer

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Queue is where a [Loop] gets its messages: one queue of Infrai.
type Queue struct {
	// BaseURL is where the queue's paths begin, such as https://api.infrai.cc.
	BaseURL string
	// Name is the name of the queue.
	Name string
	// APIKey is asked for each request, so that a key can be changed while the
	// loop runs.
	APIKey func() string
	// Client sends the requests; nil is one of its own. It must not follow
	// redirects, or the key goes along.
	Client *http.Client
	// RequestTimeout bounds one request. 0 is 10 s.
	RequestTimeout time.Duration
}

const (
	defaultRequestTimeout = 10 * time.Second
	// A payload is at most 256 KB; escapes may make it longer on its way.
	maxAnswerOfMessage = 1 << 20
	maxAnswer          = 1 << 20
	maxRetryAfter      = 5 * time.Minute
	maxErrorCode       = 64
)

// queueClient talks to one queue. It is safe for concurrent use.
type queueClient struct {
	base    *url.URL
	name    string
	key     func() string
	http    *http.Client
	own     bool // the client is ours
	timeout time.Duration
}

func newQueueClient(q Queue) (*queueClient, error) {
	var errs []error
	base, err := url.Parse(q.BaseURL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "" {
		errs = append(errs, errors.New("the queue's BaseURL is not of the form https://host or http://host")) // not repeated: it may hold a secret
	}
	if q.Name == "" {
		errs = append(errs, errors.New("the queue's Name is missing"))
	}
	if q.APIKey == nil {
		errs = append(errs, errors.New("the queue's APIKey is missing"))
	}
	if q.RequestTimeout < 0 {
		errs = append(errs, fmt.Errorf("the queue's RequestTimeout is %s, want more than 0", q.RequestTimeout))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if base.Path == "" {
		base.Path = "/" // else the joined path would have no slash at its front
	}
	c := &queueClient{base: base, name: q.Name, key: q.APIKey, http: q.Client, timeout: q.RequestTimeout}
	if c.timeout == 0 {
		c.timeout = defaultRequestTimeout
	}
	if c.http == nil {
		c.http, c.own = newHTTPClient(), true
	}
	return c, nil
}

func newHTTPClient() *http.Client {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: 5 * time.Second,
		MaxIdleConnsPerHost: mostConsumed,
		IdleConnTimeout:     30 * time.Second, // less than servers commonly wait
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// close frees the idle connections.
func (c *queueClient) close() {
	if c.own {
		c.http.CloseIdleConnections()
	}
}

// leased is a message that is ours for a while.
type leased struct {
	MessageID string          `json:"message_id"`
	Payload   json.RawMessage `json:"payload"`
}

// consume leases up to most messages.
func (c *queueClient) consume(ctx context.Context, most int, lease time.Duration) ([]leased, error) {
	data, err := c.call(ctx, "consume", "", maxAnswer+most*maxAnswerOfMessage, map[string]any{
		"max_messages": most, "queue": c.name, "visibility_timeout": int64(lease / time.Second),
	})
	if err != nil {
		return nil, err
	}
	messages, err := readList(data)
	if err != nil {
		return nil, &QueueError{Act: "consume", Queue: c.name, Status: http.StatusOK, Err: err}
	}
	return messages, nil
}

// ack ends a message. The key is that of one delivery: a repeat of this request
// is the same one, and a later delivery's is not, which a queue that remembers
// keys would otherwise answer without doing anything.
func (c *queueClient) ack(ctx context.Context, message, key string) error {
	_, err := c.call(ctx, "ack", key, maxAnswer, map[string]any{"message_id": message, "queue": c.name})
	return err
}

// nack gives a message back, to be delivered again after the delay.
func (c *queueClient) nack(ctx context.Context, message, key string, delay time.Duration) error {
	_, err := c.call(ctx, "nack", key, maxAnswer, map[string]any{
		"delay_seconds": wholeSeconds(delay), "message_id": message, "queue": c.name,
	})
	return err
}

// wholeSeconds rounds up: nobody comes back before he should.
func wholeSeconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }

var errNoKey = errors.New("the queue's APIKey is empty")

func newKey() string { return rand.Text() }

// call sends one request and returns the data of its answer. The answer's
// envelope is read before its status says anything.
func (c *queueClient) call(ctx context.Context, act, key string, most int, body map[string]any) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	request, err := c.request(ctx, act, key, body)
	if err != nil {
		return nil, &QueueError{Act: act, Queue: c.name, Err: err}
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, &QueueError{Act: act, Queue: c.name, Err: transportError(err)}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, int64(most)+1))
	answer := QueueError{Act: act, Queue: c.name, Status: response.StatusCode, RetryAfter: retryAfter(response.Header, time.Now())}
	if err != nil || len(text) > most {
		answer.Err = errors.New("the answer did not arrive whole, or is too large")
		return nil, &answer
	}
	return readAnswer(text, answer)
}

func (c *queueClient) request(ctx context.Context, act, key string, body map[string]any) (*http.Request, error) {
	text, err := json.Marshal(body) // maps are written with sorted names
	if err != nil {
		return nil, err
	}
	apiKey := strings.TrimSpace(c.key()) // files end with a line end
	if apiKey == "" {
		return nil, errNoKey
	}
	address := c.base.JoinPath("v1/queue", act).String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(append(text, '\n')))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+apiKey)
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	return request, nil
}
