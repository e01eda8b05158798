package metrics

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A chain ends with the first of its certificates, and of several chains the one
// counts that lasts longest.
func TestServerExpiry(t *testing.T) {
	t.Parallel()
	until := func(hours int) *x509.Certificate {
		return &x509.Certificate{NotAfter: noon.Add(time.Duration(hours) * time.Hour)}
	}
	for name, test := range map[string]struct {
		state tls.ConnectionState
		want  int // hours; 0: not known
	}{
		"nothing shown":            {tls.ConnectionState{}, 0},
		"the authority ends first": {tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{until(9), until(5), until(7)}}}, 5},
		"an old and a new root":    {tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{until(9), until(5)}, {until(9), until(20)}}}, 9},
		"verified by hand":         {tls.ConnectionState{PeerCertificates: []*x509.Certificate{until(3), until(5)}}, 3},
	} {
		got, known := serverExpiry(&test.state)
		if known != (test.want > 0) || known && !got.Equal(noon.Add(time.Duration(test.want)*time.Hour)) {
			t.Errorf("%s: got %s, %v, want %d hours", name, got, known, test.want)
		}
	}
}

// What nobody verifies may expire.
func TestVerifies(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]bool{"require": false, "verify-ca": true, "verify-full": true} {
		config, err := pgx.ParseConfig("postgres://db.example/app?sslmode=" + mode)
		if err != nil {
			t.Fatal(err)
		}
		if got := verifies(config.TLSConfig); got != want {
			t.Errorf("%s: got %v", mode, got)
		}
	}
}
