package doctor

import (
	"context"
	"crypto/tls"
	"net/netip"
	"strings"

	"github.com/jackc/pgx/v5"
)

// encryption looks at the connection of the checks, which is set up like the
// relay's: payloads cross it in clear text unless it is encrypted.
func encryption(_ context.Context, p *patient) (finding, error) {
	_, encrypted := p.conn.PgConn().Conn().(*tls.Conn)
	return encrypts(p.conn.Config(), encrypted), nil
}

func encrypts(config *pgx.ConnConfig, encrypted bool) finding {
	f := finding{
		status: Warn, observed: "no TLS to " + config.Host,
		message: "messages and the password cross the network unprotected",
		remedy:  "set sslmode=verify-full, and sslrootcert if the server's certificate is not signed by a known authority",
	}
	switch c := config.TLSConfig; {
	case local(config.Host):
		return pass("stays on this machine")
	case !encrypted || c == nil:
		return f
	case c.InsecureSkipVerify && c.VerifyPeerCertificate == nil && c.VerifyConnection == nil:
		f.observed = "TLS to " + config.Host + ", its certificate is not verified"
		f.message = "whoever is on the way can pose as the server: nothing verifies its certificate"
		return f
	}
	return pass("TLS to " + config.Host + ", verified")
}

// local reports whether a host is a socket's folder or a loopback address.
func local(host string) bool {
	if strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}
