package netfault

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// Proxy forwards connections to a target. All methods are safe for concurrent
// use; what they change holds for open and for new connections.
type Proxy struct {
	listener net.Listener
	closed   chan struct{}
	tasks    sync.WaitGroup

	mu      sync.Mutex
	target  string
	links   map[*link]struct{}
	delay   time.Duration
	refuse  bool
	drops   int           // how often all connections were ended
	passing chan struct{} // closed while bytes may move
	frozen  bool
	ended   bool
}

// link is a connection from a client and its continuation to the target.
type link struct {
	client, server net.Conn
	dropped        chan struct{} // closed by Cut and Reset
}

// New listens on a free loopback port and forwards to target, a host and port.
func New(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the proxy: %w", err)
	}
	p := &Proxy{
		listener: listener, closed: make(chan struct{}), target: target,
		links: make(map[*link]struct{}), passing: make(chan struct{}),
	}
	close(p.passing)
	p.tasks.Go(p.accept)
	return p, nil
}

// Addr is the host and port to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Port is the port to connect to, on the loopback interface.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Freeze stops all bytes in both directions, and the news that a side has ended
// too. Connections stay open, as they do when a host vanishes without a word;
// new ones are accepted and stay mute.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.frozen && !p.ended {
		p.frozen, p.passing = true, make(chan struct{})
	}
}

// Thaw ends Freeze. What was held back moves on.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.thaw()
}

func (p *Proxy) thaw() {
	if p.frozen {
		p.frozen = false
		close(p.passing)
	}
}

// Delay holds back every piece of data in both directions for that long.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Refuse closes new connections at once, until it is called with false.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Target sends new connections to another target.
func (p *Proxy) Target(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Cut closes all connections in good order.
func (p *Proxy) Cut() { p.drop(false) }

// Reset breaks all connections: both sides see a reset.
func (p *Proxy) Reset() { p.drop(true) }

func (p *Proxy) drop(reset bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops++
	for l := range p.links {
		close(l.dropped)
		l.close(reset)
		delete(p.links, l)
	}
}

// Connections is the number of open connections.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Close ends the proxy and all connections, and waits for its goroutines.
func (p *Proxy) Close() error {
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return nil
	}
	p.ended = true
	close(p.closed)
	p.thaw()
	for l := range p.links {
		l.close(false)
	}
	p.mu.Unlock()

	err := p.listener.Close()
	p.tasks.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.tasks.Go(func() { p.serve(client) })
	}
}

// serve forwards one connection until one of its sides ends.
func (p *Proxy) serve(client net.Conn) {
	l, ok := p.connect(client)
	if !ok {
		_ = client.Close()
		return
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { p.pump(l, l.client, l.server) })
	pumps.Go(func() { p.pump(l, l.server, l.client) })
	pumps.Wait()

	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// connect continues a connection to the target. One that is on its way there when
// the proxy begins to refuse or ends all others does not escape that.
func (p *Proxy) connect(client net.Conn) (*link, bool) {
	p.mu.Lock()
	target, refuse, drops := p.target, p.refuse, p.drops
	p.mu.Unlock()
	if refuse {
		return nil, false
	}
	server, err := net.Dial("tcp", target)
	if err != nil {
		return nil, false
	}
	l := &link{client, server, make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.refuse || p.drops != drops {
		_ = server.Close()
		return nil, false
	}
	p.links[l] = struct{}{}
	return l, true
}

// pump moves bytes one way. When that way ends, the whole connection does:
// neither Postgres nor HTTP uses a connection that is closed on one side.
func (p *Proxy) pump(l *link, from, to net.Conn) {
	defer l.close(false)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !p.wait(l) {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			p.wait(l)
			return
		}
	}
}

// wait holds a piece of data back, or the news of an end, and reports whether it
// may move on.
func (p *Proxy) wait(l *link) bool {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.dropped:
			return false
		case <-p.closed:
			return false
		}
	}
	for {
		p.mu.Lock()
		passing, frozen := p.passing, p.frozen
		p.mu.Unlock()
		if !frozen {
			return true
		}
		select {
		case <-passing:
		case <-l.dropped:
			return false
		case <-p.closed:
			return false
		}
	}
}

// close closes both sides. With reset, unsent data is thrown away and the other
// ends see a reset.
func (l *link) close(reset bool) {
	both := []net.Conn{l.client, l.server}
	for _, conn := range both { // before either is closed, on which its pump closes the other
		if tcp, ok := conn.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0) // fails on a closed connection only
		}
	}
	for _, conn := range both {
		_ = conn.Close() // a second close says so, and nothing else
	}
}
