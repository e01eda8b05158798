package infrai

import (
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpproxy"
)

// connections is a transport that is replaced when its connections are old.
type connections struct {
	make    func() *http.Transport
	maxAge  time.Duration // 0: never
	current atomic.Pointer[generation]
}

// generation is a transport and when its time is over.
type generation struct {
	*http.Transport
	until time.Time
}

func newConnections(cfg Config, proxy *url.URL, now time.Time) *connections {
	c := &connections{make: func() *http.Transport { return newTransport(cfg, proxy) }, maxAge: cfg.ConnectionMaxAge}
	c.current.Store(c.next(now))
	return c
}

func (c *connections) next(now time.Time) *generation {
	return &generation{c.make(), now.Add(c.maxAge)}
}

// transport returns the transport to use. The old one finishes what it has
// begun: a connection that comes back to it afterwards is closed.
func (c *connections) transport(now time.Time) *http.Transport {
	g := c.current.Load()
	if c.maxAge == 0 || now.Before(g.until) {
		return g.Transport
	}
	fresh := c.next(now)
	if !c.current.CompareAndSwap(g, fresh) {
		return c.current.Load().Transport
	}
	g.CloseIdleConnections()
	return fresh.Transport
}

func (c *connections) close() { c.current.Load().CloseIdleConnections() }

const (
	// dialTimeout leaves time for a second address within the request's timeout.
	dialTimeout = 5 * time.Second
	// keepAlive finds a peer that vanished while a connection was idle.
	keepAlive = 15 * time.Second
	// A connection of HTTP/2 carries many requests, and a dead one would fail
	// them all until the kernel gives up: it is asked for a sign of life.
	pingAfter   = 5 * time.Second
	pingTimeout = 5 * time.Second
	// writeBuffer takes the header and the body of a usual request, so that both
	// leave in one packet.
	writeBuffer = 8 << 10
	readBuffer  = 4 << 10
	// maxResponseHeader bounds what a broken server can make us hold.
	maxResponseHeader = 64 << 10
)

func newTransport(cfg Config, proxy *url.URL) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
	return &http.Transport{
		Proxy:                  http.ProxyURL(proxy), // nil is none
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		TLSHandshakeTimeout:    dialTimeout,
		MaxConnsPerHost:        cfg.MaxConnections,
		MaxIdleConns:           cfg.MaxConnections,
		MaxIdleConnsPerHost:    cfg.MaxConnections,
		IdleConnTimeout:        cfg.IdleTimeout,
		DisableCompression:     true, // answers are shorter than a compressed one's frame
		WriteBufferSize:        writeBuffer,
		ReadBufferSize:         readBuffer,
		MaxResponseHeaderBytes: maxResponseHeader,
	}
}

// proxyFor returns the proxy that the environment names for an address, or nil.
// The error of a variable that is no address is withheld, since it would repeat
// a password.
func proxyFor(u *url.URL) (*url.URL, error) {
	proxy, err := httpproxy.FromEnvironment().ProxyFunc()(u)
	if err != nil {
		return nil, errProxy
	}
	return proxy, nil
}
