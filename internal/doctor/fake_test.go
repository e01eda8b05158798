package doctor_test

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

// fake stands where a server should be.
type fake struct {
	refuse            string          // the SQLSTATE that everybody gets
	behind            *pgx.ConnConfig // the server to which it passes sessions on
	refuseReplication bool            // as poolers that do not know replication
	dropReplication   bool            // as poolers that ignore what they do not know
}

// startFake listens until the test's end and returns the address.
func startFake(t *testing.T, f fake) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var sessions sync.WaitGroup
	sessions.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			sessions.Go(func() {
				defer client.Close()
				f.serve(client)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		sessions.Wait()
	})
	return listener.Addr().String()
}

func (f fake) serve(client net.Conn) {
	backend := pgproto3.NewBackend(client, client)
	message, err := backend.ReceiveStartupMessage()
	if err != nil {
		return
	}
	startup, ok := message.(*pgproto3.StartupMessage)
	if !ok {
		return // a cancel request
	}
	_, replication := startup.Parameters["replication"]
	switch {
	case f.refuse != "":
		answer(backend, f.refuse, "refused for the test")
		return
	case f.refuseReplication && replication:
		answer(backend, "08P01", "unsupported startup parameter: replication")
		return
	case f.dropReplication:
		delete(startup.Parameters, "replication")
	}
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", net.JoinHostPort(f.behind.Host, strconv.Itoa(int(f.behind.Port))))
	if err != nil {
		return
	}
	defer server.Close()
	frontend := pgproto3.NewFrontend(server, server)
	frontend.Send(startup)
	if frontend.Flush() != nil {
		return
	}
	var upstream sync.WaitGroup
	upstream.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	_, _ = io.Copy(client, server)
	_ = client.Close()
	upstream.Wait()
}

func answer(backend *pgproto3.Backend, code, text string) {
	backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: text})
	_ = backend.Flush()
}
