package admin

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"go.uber.org/zap"
)

// probed are for programs, which come by whatever name their own settings have.
// They are small, and change nothing.
var probed = []string{"/livez", "/readyz", "/metrics"}

// named lets requests through that come by a name of this server. Any site can let
// its own name lead to this machine, and then a browser takes what is here for a
// part of that site, which may read all of it (DNS rebinding). What it cannot do is
// come by another name than its own. An address is no name that could lead astray,
// and who sends none at all is no browser.
func (s *Server) named(next http.Handler) http.Handler {
	address, ok := s.listener.Addr().(*net.TCPAddr)
	loopback := ok && address.IP.IsLoopback()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostOf(r.Host)
		if s.cfg.known(host) || !loopback && slices.Contains(probed, r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		s.log.Debug("request by a strange name", zap.String("host", host), zap.String("remote", r.RemoteAddr))
		http.Error(w, fmt.Sprintf("this server is not known as %q: the host names by which it is reached are RELAY_ADMIN_HOSTS", host),
			http.StatusMisdirectedRequest)
	})
}

// known reports whether a host of a request means this server.
func (c *Config) known(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil || host == "" || host == "localhost" {
		return true
	}
	own, _, _ := net.SplitHostPort(c.Listen)
	return host == strings.ToLower(own) || slices.ContainsFunc(c.Hosts, func(name string) bool { return strings.EqualFold(name, host) })
}

// hostOf is the host of a Host header: without a port, and in one spelling.
func hostOf(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
