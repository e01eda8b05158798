package metrics

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// expiries are when the certificates of a connection expire, by whose they are:
// those of the server, if they count, and the relay's own.
func expiries(conn *pgx.Conn) map[string]time.Time {
	encrypted, ok := conn.PgConn().Conn().(*tls.Conn)
	config := conn.Config().TLSConfig
	if !ok || config == nil {
		return nil
	}
	found := make(map[string]time.Time)
	if verifies(config) {
		state := encrypted.ConnectionState()
		if expires, ok := serverExpiry(&state); ok {
			found["server"] = expires
		}
	}
	if len(config.Certificates) > 0 && config.Certificates[0].Leaf != nil {
		found["client"] = config.Certificates[0].Leaf.NotAfter
	}
	return found
}

// verifies reports whether a connection would be refused whose server's certificate
// has expired. To check the authority alone and not the name, pgx looks itself.
func verifies(config *tls.Config) bool {
	return !config.InsecureSkipVerify || config.VerifyPeerCertificate != nil || config.VerifyConnection != nil
}

// serverExpiry is when the server can no longer be verified: when the first
// certificate expires of the chain that lasts longest. Where the chains are not
// known, those that the server has shown stand for one.
func serverExpiry(state *tls.ConnectionState) (latest time.Time, known bool) {
	chains := state.VerifiedChains
	if len(chains) == 0 {
		chains = [][]*x509.Certificate{state.PeerCertificates}
	}
	for _, chain := range chains {
		if len(chain) == 0 {
			continue
		}
		first := slices.MinFunc(chain, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
		if first.NotAfter.After(latest) {
			latest, known = first.NotAfter, true
		}
	}
	return latest, known
}
