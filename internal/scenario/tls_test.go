package scenario_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
)

// authority is a certificate authority of the test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	file        string // its certificate
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a := authority{key: newKey(t), file: filepath.Join(t.TempDir(), name+".pem")}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err == nil {
		a.certificate, err = x509.ParseCertificate(der)
	}
	if err == nil {
		err = os.WriteFile(a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue makes a certificate for a host, and its key, as PEM.
func (a authority) issue(t *testing.T, host string) (certificate, key []byte) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	private := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// encrypt has the server offer TLS.
func encrypt(t *testing.T, cluster *pgtest.Cluster, w *scenario.World, certificate, key []byte) {
	t.Helper()
	data := filepath.Join(filepath.Dir(cluster.LogFile()), "data")
	owner, err := os.Stat(data)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"server.crt": certificate, "server.key": key} {
		file := filepath.Join(data, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		id := owner.Sys().(*syscall.Stat_t)
		if err := os.Chown(file, int(id.Uid), int(id.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	w.Exec(`alter system set ssl = on`)
	w.Exec(`select pg_reload_conf()`)
	pgtest.Eventually(t, scenario.Patience, func() error {
		if w.Count(`select count(*) from pg_settings where name = 'ssl' and setting = 'on'`) == 0 {
			return fmt.Errorf("the server does not offer TLS yet")
		}
		return nil
	})
}

// terminator ends TLS before the server, with a certificate of its own, and
// speaks TLS to the server. It returns its port.
func terminator(t *testing.T, server string, certificate, key []byte) int {
	t.Helper()
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() { terminateTLS(ctx, conn, server, pair) })
		}
	})
	t.Cleanup(func() {
		stop()
		listener.Close()
		tasks.Wait()
	})
	return listener.Addr().(*net.TCPAddr).Port
}

// sslRequest is the question that both sides begin with.
var sslRequest = []byte{0, 0, 0, 8, 4, 210, 22, 47}

func terminateTLS(ctx context.Context, client net.Conn, address string, pair tls.Certificate) {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { client.Close(); server.Close() })()
	question, answer := make([]byte, len(sslRequest)), make([]byte, 1)
	if _, err := io.ReadFull(client, question); err != nil {
		return
	}
	if _, err := client.Write([]byte{'S'}); err != nil {
		return
	}
	if _, err := server.Write(sslRequest); err != nil {
		return
	}
	if _, err := io.ReadFull(server, answer); err != nil {
		return
	}
	outer := tls.Server(client, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	inner := tls.Client(server, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a proxy that is trusted to know its server
	var ways sync.WaitGroup
	for _, way := range [][2]*tls.Conn{{outer, inner}, {inner, outer}} {
		ways.Go(func() {
			defer client.Close()
			defer server.Close()
			_, _ = io.Copy(way[0], way[1]) // ends when either side does
		})
	}
	ways.Wait()
}

// SEC-03: TLS holds for both connections as the connection string says, channel
// binding included: nothing is sent in plain text instead, and what is refused is
// refused at the start, with the reason.
func TestSEC03_TLSOnBothConnections(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	w := scenario.On(t, cluster.Migrated(t))
	good, other := newAuthority(t, "good"), newAuthority(t, "other")
	certificate, key := good.issue(t, "localhost")
	encrypt(t, cluster, w, certificate, key)
	// Plain text is not refused by the server: a fallback would succeed.
	asRelay(t, cluster, w, "S3cret", "host all "+relayRole+" 127.0.0.1/32 scram-sha-256")
	w.Exec(`alter system set log_connections = on`)
	w.Exec(`select pg_reload_conf()`)
	certificate, key = good.issue(t, "localhost")
	proxy := terminator(t, fmt.Sprintf("127.0.0.1:%d", cluster.Port()), certificate, key)

	address := func(host string, port int, options string) string {
		u, err := url.Parse(w.Env["DATABASE_URL"])
		if err != nil {
			t.Fatal(err)
		}
		u.User, u.Host, u.RawQuery = url.UserPassword(relayRole, "S3cret"), fmt.Sprintf("%s:%d", host, port), options
		return u.String()
	}
	direct := cluster.Port()
	full := "sslmode=verify-full&sslrootcert=" + good.file
	right := address("localhost", direct, full+"&channel_binding=require")

	t.Run("accepted", func(t *testing.T) {
		for _, test := range []struct {
			name, url string
			encrypted bool
		}{
			{"without TLS", address("127.0.0.1", direct, "sslmode=disable"), false},
			{"encrypted, whoever it is", address("127.0.0.1", direct, "sslmode=require"), true},
			{"the right authority", address("127.0.0.1", direct, "sslmode=verify-ca&sslrootcert="+good.file), true},
			{"the right name and channel binding", right, true},
			{"ended before the server, without channel binding", address("localhost", proxy, full+"&channel_binding=disable"), true},
		} {
			w.Env["DATABASE_URL"] = test.url
			r := w.Start()
			r.AwaitLog("session began")
			w.Insert(scenario.Batch(strings.ReplaceAll(test.name, " ", "-"), 10, "a", "")...)
			w.Settle()
			pgtest.Eventually(t, scenario.Patience, func() error { // those of the relay before may be on their way out
				var sql, streams int
				err := w.Conn.QueryRow(t.Context(), `select count(*) filter (where backend_type = 'client backend'), count(*) filter (where backend_type = 'walsender')
					from pg_stat_activity join pg_stat_ssl using (pid) where usename = $1 and ssl = $2`, relayRole, test.encrypted).Scan(&sql, &streams)
				if others := w.Count(`select count(*) from pg_stat_activity join pg_stat_ssl using (pid) where usename = $1 and ssl <> $2`,
					relayRole, test.encrypted); err != nil || sql == 0 || streams != 1 || others != 0 {
					return fmt.Errorf("%s: %d SQL connections, %d streams, %d that are not so: %w", test.name, sql, streams, others, err)
				}
				return nil
			})
			if err := r.Stop(); err != nil {
				t.Errorf("%s: %v", test.name, err)
			}
		}
	})
	if t.Failed() {
		return
	}

	began := len(logText(t, cluster))
	for name, test := range map[string]struct{ url, want string }{
		"another authority":             {address("localhost", direct, "sslmode=verify-full&sslrootcert="+other.file), "certificate signed by unknown authority"},
		"another authority, no name":    {address("localhost", direct, "sslmode=verify-ca&sslrootcert="+other.file), "certificate signed by unknown authority"},
		"another name":                  {address("127.0.0.1", direct, full), "certificate"},
		"channel binding through proxy": {address("localhost", proxy, full+"&channel_binding=require"), "channel binding"},
		"no channel to bind":            {address("127.0.0.1", direct, "sslmode=disable&channel_binding=require"), "channel binding"},
	} {
		for connection, env := range map[string]map[string]string{
			"both":        {"DATABASE_URL": test.url},
			"replication": {"DATABASE_URL": right, "RELAY_REPLICATION_URL": test.url},
		} {
			t.Run(name+"/"+connection, func(t *testing.T) {
				settings := map[string]string{"RELAY_SLOT": w.Env["RELAY_SLOT"], "INFRAI_BASE_URL": w.QueueURL, "INFRAI_API_KEY": "key", "RELAY_LOG_FORMAT": "json"}
				maps.Copy(settings, env)
				p := relaybin.Run(t, settings, "run")
				p.AwaitExit(t, 14)
				text := p.Log().Text()
				if !strings.Contains(text, test.want) {
					t.Errorf("the log does not say %q: %s", test.want, text)
				}
				if strings.Contains(text, "S3cret") {
					t.Errorf("the password is in the log: %s", text)
				}
			})
		}
	}
	for line := range strings.Lines(logText(t, cluster)[began:]) {
		if strings.Contains(line, "connection authorized: user="+relayRole) && !strings.Contains(line, "SSL enabled") {
			t.Errorf("a connection in plain text: %s", line)
		}
	}
}

// When the server's certificate expires is known where it counts: where the relay
// would not believe the server afterwards.
func TestMetrics_CertificateExpires(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	w := scenario.On(t, cluster.Migrated(t))
	good := newAuthority(t, "good")
	certificate, key := good.issue(t, "localhost")
	encrypt(t, cluster, w, certificate, key)
	u, err := url.Parse(w.Env["DATABASE_URL"])
	if err != nil {
		t.Fatal(err)
	}
	u.Host = fmt.Sprintf("localhost:%d", cluster.Port())
	for mode, known := range map[string]bool{"verify-full": true, "verify-ca": true, "require": false} {
		u.RawQuery = "sslmode=" + mode
		if known {
			u.RawQuery += "&sslrootcert=" + good.file
		}
		w.Env["DATABASE_URL"] = u.String()
		p := process(t, w, nil)
		h := patientOf(t, p)
		var all scrape
		pgtest.Eventually(t, scenario.Patience, func() (err error) {
			if all, err = h.scrape(); err == nil && all["database_read_duration_seconds"] == 0 {
				err = errors.New("the database has not been looked at")
			}
			return err
		})
		expires, found := all[`database_certificate_expiry_timestamp_seconds{certificate="server"}`]
		if left := time.Until(time.Unix(int64(expires), 0)); found != known || known && (left <= 0 || left > time.Hour) {
			t.Errorf("%s: it expires in %s (%v)", mode, left, found)
		}
		terminate(t, p)
		p.AwaitExit(t, 0)
	}
}
