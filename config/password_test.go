package config_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-relay/outbox-relay/config"
)

// told connects with a configuration to a server that asks for the password in
// plain text, and returns what it was told.
func told(t *testing.T, c *pgx.ConnConfig) string {
	t.Helper()
	password := make(chan string, 1)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		defer close(password)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		server := pgproto3.NewBackend(conn, conn)
		if _, err := server.ReceiveStartupMessage(); err != nil {
			return
		}
		server.Send(&pgproto3.AuthenticationCleartextPassword{})
		_ = server.Flush()
		if err := server.SetAuthType(pgproto3.AuthTypeCleartextPassword); err != nil {
			return
		}
		if message, err := server.Receive(); err == nil {
			password <- message.(*pgproto3.PasswordMessage).Password
		}
	}()
	address := listener.Addr().(*net.TCPAddr)
	c.Host, c.Port, c.TLSConfig, c.Fallbacks = address.IP.String(), uint16(address.Port), nil, nil //nolint:gosec // a port fits
	if conn, err := pgx.ConnectConfig(t.Context(), c); err == nil {
		conn.Close(t.Context())
		t.Fatal("connected to nobody")
	}
	return <-password
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// OPS-12: every new connection of both kinds asks for the password of that
// moment, whichever file it is in.
func TestLoad_FollowsThePassword(t *testing.T) {
	t.Parallel()
	file, passfile := filepath.Join(t.TempDir(), "password"), filepath.Join(t.TempDir(), "pgpass")
	for name, test := range map[string]struct {
		file, before, after string
		settings            map[string]string
	}{
		"file": {file, "one\n", "t:w o", map[string]string{"RELAY_DATABASE_PASSWORD_FILE": file}},
		"password file of libpq": {
			passfile, "*:*:*:app:one\n", "*:*:*:app:t\\:w o\n",
			map[string]string{"DATABASE_URL": "postgres://app@localhost/orders?sslmode=disable&passfile=" + passfile},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			write(t, test.file, test.before)
			c := load(t, test.settings)
			for _, kind := range []func() *pgx.ConnConfig{c.Database, c.Replication} {
				if got := told(t, kind()); got != "one" {
					t.Errorf("the first connection told %q", got)
				}
			}
			write(t, test.file, test.after)
			for _, kind := range []func() *pgx.ConnConfig{c.Database, c.Replication} {
				if got := told(t, kind()); got != "t:w o" {
					t.Errorf("the next connection told %q", got)
				}
			}
			write(t, test.file, "") // it is being replaced
			if got := told(t, c.Database()); got != "t:w o" {
				t.Errorf("without a password in the file a connection told %q", got)
			}
		})
	}
}

// The file's name is shown only if it cannot be the password itself.
func TestLoad_PasswordFileIsNone(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	write(t, empty, "\n")
	for file, want := range map[string]string{
		"S3cret":            "RELAY_DATABASE_PASSWORD_FILE is not an absolute path",
		empty:               "RELAY_DATABASE_PASSWORD_FILE: " + empty + " does not hold a password on one line",
		"/no/such/password": "RELAY_DATABASE_PASSWORD_FILE: open /no/such/password: no such file or directory",
	} {
		got := problems(t, map[string]string{"RELAY_DATABASE_PASSWORD_FILE": file}, config.Replication)
		if diff := cmp.Diff([]string{want}, got); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
	}
}
