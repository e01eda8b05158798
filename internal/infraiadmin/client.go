package infraiadmin

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/relay/infrai"
)

// Client talks to one Infrai project. It is safe for concurrent use.
type Client struct {
	cfg       infrai.Config
	base      *url.URL
	transport *http.Transport
}

const (
	// maxAnswer bounds an answer. The longest is the index of discovery with some
	// hundred calls.
	maxAnswer = 4 << 20
	// maxHeader bounds the header of an answer.
	maxHeader = 64 << 10
	// handshakeTimeout is for TLS alone; the whole has the timeout of the settings.
	handshakeTimeout = 5 * time.Second
)

// New makes a client for settings that are valid. It sends nothing.
func New(cfg infrai.Config) (*Client, error) {
	base, err := url.Parse(cfg.BaseURL)
	if err != nil {
		return nil, errors.New("INFRAI_BASE_URL is not a URL") // the error would repeat it
	}
	if base.Path == "" {
		base.Path = "/" // else the joined path would have no slash at its front
	}
	return &Client{cfg: cfg, base: base, transport: &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxResponseHeaderBytes: maxHeader,
	}}, nil
}

// Close frees the connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Host is where the queue is, without what could be secret.
func (c *Client) Host() string { return c.base.Host }

// request is one question.
type request struct {
	act    string // what it is for, in errors: "describe queue orders"
	method string
	path   string
	open   bool   // needs no API key
	key    string // idempotency key; empty for none
	body   []byte // nil for none
}

// answer is a whole answer, of any status.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// do asks and returns the answer. The error is an [*Error] if there was none.
func (c *Client) do(ctx context.Context, r request) (*answer, error) {
	header, err := c.header(r)
	if err != nil {
		return nil, &Error{Act: r.act, Problem: NoKey, Host: c.Host(), Err: err}
	}
	limited, cancel := context.WithTimeoutCause(ctx, c.cfg.RequestTimeout, errTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(limited, r.method, c.base.JoinPath(r.path).String(), bytes.NewReader(r.body))
	if err != nil {
		return nil, errors.New(r.act + ": INFRAI_BASE_URL is not a URL")
	}
	req.Header = header
	a, err := c.roundTrip(req)
	switch {
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(context.Cause(limited), errTimeout):
		return nil, &Error{Act: r.act, Problem: Silent, Host: c.Host(), Err: fmt.Errorf("%w within %s", errTimeout, c.cfg.RequestTimeout)}
	case errors.Is(err, errTooLong):
		return nil, &Error{Act: r.act, Problem: Unreadable, Host: c.Host(), Err: err}
	}
	problem := Unreachable
	if _, distrusted := errors.AsType[*tls.CertificateVerificationError](err); distrusted {
		problem = Untrusted
	}
	return nil, &Error{Act: r.act, Problem: problem, Host: c.Host(), Local: c.local(), Err: errors.New(networkText(err))}
}

var (
	errTimeout = errors.New("no whole answer")
	errTooLong = fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
)

// roundTrip goes to the transport directly: what http.Client adds (redirects,
// cookies) is not wanted here. The transport sends a request with an idempotency
// key again if its connection was closed under it, which the key makes safe.
func (c *Client) roundTrip(req *http.Request) (*answer, error) {
	response, err := c.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxAnswer:
		return nil, errTooLong
	}
	return &answer{status: response.StatusCode, header: response.Header, body: body}, nil
}

func (c *Client) header(r request) (http.Header, error) {
	header := http.Header{"User-Agent": {"outbox-relay"}, "Accept": {"application/json"}}
	if r.body != nil {
		header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		header.Set("Idempotency-Key", r.key)
	}
	if r.open {
		return header, nil
	}
	key, err := c.apiKey()
	header.Set("Authorization", "Bearer "+key)
	return header, err
}

// apiKey is the key of now.
func (c *Client) apiKey() (string, error) {
	key := c.cfg.APIKey.Reveal()
	if c.cfg.APIKeyFile != "" {
		content, err := os.ReadFile(c.cfg.APIKeyFile)
		if err != nil {
			return "", err
		}
		key = strings.TrimSpace(string(content))
	}
	if key == "" || !graphic(key) {
		return "", errors.New("want printable ASCII without spaces on one line")
	}
	return key, nil
}

// graphic reports whether s is printable ASCII without spaces: safe in a header
// and on a terminal.
func graphic(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
