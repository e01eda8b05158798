package netfault_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outbox-relay/outbox-relay/internal/netfault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon bounds what happens at once, on a machine that may be busy; brief is how long
// silence is listened to.
const (
	soon  = time.Minute
	brief = 50 * time.Millisecond
)

// echo is a server that sends back every line behind its own name.
func echo(t *testing.T, name string) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() {
				defer conn.Close()
				lines := bufio.NewScanner(conn)
				for lines.Scan() {
					fmt.Fprintf(conn, "%s %s\n", name, lines.Text())
				}
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		tasks.Wait()
	})
	return listener.Addr().String()
}

// start is a proxy to an echo server.
func start(t *testing.T) *netfault.Proxy {
	t.Helper()
	target := echo(t, "echo")
	p, err := netfault.New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// client is a connection through the proxy.
type client struct {
	t     *testing.T
	conn  net.Conn
	lines *bufio.Reader
}

func dial(t *testing.T, p *netfault.Proxy) *client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{t: t, conn: conn, lines: bufio.NewReader(conn)}
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.conn, line); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) receive(within time.Duration) (string, error) {
	c.t.Helper()
	if err := c.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		c.t.Fatal(err)
	}
	return c.lines.ReadString('\n')
}

func (c *client) wants(want string) {
	c.t.Helper()
	if got, err := c.receive(soon); got != want+"\n" || err != nil {
		c.t.Fatalf("received %q, %v; want %q", got, err, want)
	}
}

func TestProxy_ForwardsBothWays(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := dial(t, p)
	for i := range 10 {
		c.send(fmt.Sprint(i))
		c.wants(fmt.Sprintf("echo %d", i))
	}
	if got := p.Connections(); got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
}

func TestProxy_Freeze_HoldsBytesBackUntilThaw(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := dial(t, p)
	c.send("before")
	c.wants("echo before")

	p.Freeze()
	c.send("held")
	if got, err := c.receive(brief); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a frozen proxy let %q through, %v", got, err)
	}
	late := dial(t, p)
	late.send("late")

	p.Thaw()
	c.wants("echo held")
	late.wants("echo late")
}

func TestProxy_Cut_EndsConnectionsAndAcceptsNewOnes(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := dial(t, p)
	c.send("one")
	c.wants("echo one")

	p.Cut()
	if _, err := c.receive(soon); !errors.Is(err, io.EOF) {
		t.Errorf("after a cut: %v, want EOF", err)
	}
	again := dial(t, p)
	again.send("two")
	again.wants("echo two")
}

func TestProxy_Reset_IsSeenAsAReset(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := dial(t, p)
	c.send("one")
	c.wants("echo one")

	p.Reset()
	if _, err := c.receive(soon); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after a reset: %v, want a reset", err)
	}
}

// listen is a proxy to a server that is the test itself.
func listen(t *testing.T) (net.Listener, *netfault.Proxy) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	p, err := netfault.New(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return listener, p
}

// Neither side is closed in good order because the other one was reset before it.
func TestProxy_Reset_IsSeenByTheServerToo(t *testing.T) {
	t.Parallel()
	listener, p := listen(t)
	for range 100 {
		c := dial(t, p)
		accepted, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		server := &client{t: t, conn: accepted, lines: bufio.NewReader(accepted)}
		c.send("one")
		server.wants("one")
		p.Reset()
		_, err = server.receive(soon)
		accepted.Close()
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("after a reset: %v, want a reset", err)
		}
	}
}

// A connection that is not made to its end yet does not escape.
func TestProxy_RefuseAndCut_EndWhatIsBeingMade(t *testing.T) {
	t.Parallel()
	p := start(t)
	for range 200 {
		c := dial(t, p)
		p.Refuse(true)
		p.Cut()
		if _, err := c.receive(soon); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a connection: %v, want its end", err)
		}
		c.conn.Close()
		p.Refuse(false)
	}
}

func TestProxy_Refuse_ClosesNewConnectionsOnly(t *testing.T) {
	t.Parallel()
	p := start(t)
	old := dial(t, p)
	old.send("one")
	old.wants("echo one")

	p.Refuse(true)
	if _, err := dial(t, p).receive(soon); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a refused connection: %v, want its end", err)
	}
	old.send("two")
	old.wants("echo two")
}

func TestProxy_Delay_HoldsEachPieceBack(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := dial(t, p)
	p.Delay(brief)
	sent := time.Now()
	c.send("slow")
	c.wants("echo slow")
	if took := time.Since(sent); took < 2*brief {
		t.Errorf("there and back in %v, want at least %v", took, 2*brief)
	}
}

func TestProxy_Target_IsForNewConnections(t *testing.T) {
	t.Parallel()
	p := start(t)
	old := dial(t, p)
	old.send("one")
	old.wants("echo one")

	p.Target(echo(t, "other"))
	fresh := dial(t, p)
	fresh.send("two")
	fresh.wants("other two")
	old.send("three")
	old.wants("echo three")
}

func TestProxy_Close_WhileFrozen(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := dial(t, p)
	p.Freeze()
	c.send("held")
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.receive(soon); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after Close: %v, want the connection's end", err)
	}
}

func TestProxy_Freeze_HidesTheEndOfASide(t *testing.T) {
	t.Parallel()
	listener, p := listen(t)
	c := dial(t, p)
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close() })
	server := &client{t: t, conn: accepted, lines: bufio.NewReader(accepted)}
	c.send("one")
	server.wants("one")

	p.Freeze()
	c.conn.Close()
	if _, err := server.receive(brief); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the server heard through a frozen proxy: %v", err)
	}
	p.Thaw()
	if _, err := server.receive(soon); !errors.Is(err, io.EOF) {
		t.Errorf("after the thaw: %v, want EOF", err)
	}
}

func TestProxy_Cut_WhileFrozen(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := dial(t, p)
	c.send("one")
	c.wants("echo one")
	p.Freeze()
	p.Cut()
	if _, err := c.receive(soon); !errors.Is(err, io.EOF) {
		t.Errorf("after a cut: %v, want EOF", err)
	}
	if got := p.Connections(); got != 0 {
		t.Errorf("%d connections after a cut", got)
	}
}
