package infrai

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/outbox"
	"github.com/outbox-relay/outbox-relay/relay"
)

// Publisher publishes messages to one Infrai project. It is safe for concurrent
// use.
type Publisher struct {
	cfg         Config
	url         *url.URL
	log         *zap.Logger
	now         func() time.Time
	key         *apiKey
	deadlines   *deadlines
	connections *connections
	spans       *spans // nil: no traces
}

var _ relay.Publisher = (*Publisher)(nil)

var errProxy = errors.New("HTTP_PROXY or HTTPS_PROXY is not an address of a proxy")

// New makes a publisher. It sends nothing. The error says what is wrong with
// the settings, the key's file or the proxy variables.
func New(cfg Config, log *zap.Logger) (*Publisher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	log = log.Named("infrai")
	address, err := cfg.publishURL()
	if err != nil {
		return nil, err
	}
	key, err := newAPIKey(cfg.APIKey, cfg.APIKeyFile, log)
	if err != nil {
		return nil, err
	}
	proxy, err := proxyFor(address)
	if err != nil {
		return nil, err
	}
	if proxy != nil {
		log.Info("publishing through a proxy", zap.String("proxy", proxy.Scheme+"://"+proxy.Host))
	}
	return &Publisher{
		cfg: cfg, url: address, log: log, now: time.Now, key: key,
		deadlines:   newDeadlines(cfg.RequestTimeout),
		connections: newConnections(cfg, proxy, time.Now()),
	}, nil
}

// Close frees the idle connections. Requests under way finish, and a publisher
// that is used again opens new ones.
func (p *Publisher) Close() {
	p.deadlines.close()
	p.connections.close()
}

// URL is where messages go, without a password.
func (p *Publisher) URL() string { return p.url.Redacted() }

// Key tells of the key of now. It waits for nobody.
func (p *Publisher) Key() KeyState { return *p.key.state.Load() }

// Publish implements [relay.Publisher]. A key that was refused and has changed
// in its file since is tried once more at once, so that a rotation stops nothing.
func (p *Publisher) Publish(ctx context.Context, row *outbox.Row) (relay.Receipt, error) {
	body, err := p.encode(row)
	if err != nil {
		return relay.Receipt{}, err
	}
	if err := ctx.Err(); err != nil {
		return relay.Receipt{}, noAnswer(false, err)
	}
	now := p.now()
	authorization := p.key.current(now)
	receipt, err := p.send(ctx, row, authorization, body, now)
	if err != nil && unauthorized(err) && p.key.refused(authorization) {
		now = p.now()
		return p.send(ctx, row, p.key.current(now), body, now)
	}
	return receipt, err
}

func unauthorized(err error) bool {
	var refusal *relay.PublishError
	return errors.As(err, &refusal) &&
		(refusal.Status == http.StatusUnauthorized || refusal.Status == http.StatusForbidden)
}

// Header values that all requests share: nobody may change them.
var (
	jsonType  = []string{"application/json"}
	userAgent = []string{"outbox-relay"}
)

// send makes one request, with a span around it if there are traces.
func (p *Publisher) send(ctx context.Context, row *outbox.Row, authorization []string, body []byte, now time.Time) (relay.Receipt, error) {
	if p.spans == nil {
		return p.request(ctx, row.Key, authorization, body, now)
	}
	ctx, span := p.spans.begin(ctx, row, now)
	receipt, err := p.request(ctx, row.Key, authorization, body, now)
	end(span, receipt, err)
	return receipt, err
}

// request makes one request. It goes to the transport directly: what http.Client
// adds (redirects, cookies, its timer) is not wanted here.
func (p *Publisher) request(ctx context.Context, key string, authorization []string, body []byte, now time.Time) (relay.Receipt, error) {
	limited := p.deadlines.join(ctx, now)
	defer p.deadlines.leave(limited)

	a := &attempt{body: body}
	req := (&http.Request{
		Method: http.MethodPost,
		URL:    p.url,
		Host:   p.url.Host,
		Header: http.Header{
			"Authorization":   authorization,
			"Content-Type":    jsonType,
			"Idempotency-Key": []string{key},
			"User-Agent":      userAgent,
		},
		ContentLength: int64(len(body)),
		Body:          a.reader(),
		GetBody:       a.again,
	}).WithContext(limited)
	p.spans.carry(ctx, req.Header)

	resp, err := p.connections.transport(now).RoundTrip(req)
	if err != nil {
		return relay.Receipt{}, noAnswer(a.repeated.Load() || !connecting(err), reason(ctx, limited, err))
	}
	defer resp.Body.Close()
	buffer := answers.Get().(*bytes.Buffer)
	defer giveBack(buffer)
	complete, err := readAnswer(buffer, resp.Body)
	if err != nil && succeeded(resp.StatusCode) {
		return relay.Receipt{}, &relay.PublishError{
			Class: relay.UnknownOutcome, Status: resp.StatusCode, RequestID: headerID(resp.Header),
			Message: "the answer broke off", Err: reason(ctx, limited, err),
		}
	}
	return p.judge(resp, buffer.String(), complete && err == nil)
}

// attempt is the body of one request. The transport reads it again when it
// sends the request again on another connection.
type attempt struct {
	body     []byte
	repeated atomic.Bool
}

// reader returns the body as a type that the transport knows to be in memory,
// or it would send the header in a packet of its own.
func (a *attempt) reader() io.ReadCloser { return io.NopCloser(bytes.NewReader(a.body)) }

// again is the request's GetBody. The transport asks for it only if it has read
// the body before.
func (a *attempt) again() (io.ReadCloser, error) {
	a.repeated.Store(true)
	return a.reader(), nil
}

const (
	// maxAnswer is how much of an answer is read for what it says: about a
	// hundred times a usual one.
	maxAnswer = 64 << 10
	// maxDrained is how much more is read to keep the connection.
	maxDrained = 256 << 10
)

var answers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// giveBack keeps rare large buffers out of the pool.
func giveBack(buffer *bytes.Buffer) {
	if buffer.Cap() <= maxScratch {
		answers.Put(buffer)
	}
}

// readAnswer reads an answer, at most maxAnswer of it, and reports whether that
// was all.
func readAnswer(buffer *bytes.Buffer, body io.Reader) (complete bool, err error) {
	buffer.Reset()
	n, err := buffer.ReadFrom(io.LimitReader(body, maxAnswer))
	if err != nil {
		return false, err
	}
	if n < maxAnswer {
		return true, nil
	}
	_, _ = io.CopyN(io.Discard, body, maxDrained)
	return false, nil
}
