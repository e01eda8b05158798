package admin

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/secret"
)

// Config holds the settings of the admin server. The env tags carry the names
// without the prefix RELAY_.
type Config struct {
	// Listen is the host and port where the relay answers /livez, /readyz and
	// /status over HTTP; off is no server. Port 0 takes a free one, which the log names. Whoever
	// reaches it sees names of queues and texts of errors, so outside of a
	// container it should stay on this machine. Two relays on one machine need two
	// ports.
	Listen string `env:"ADMIN_LISTEN, default=127.0.0.1:9464"`
	// Hosts lists the host names by which people reach the server, separated by
	// commas and without ports: those of a proxy before it, or of the machine. By
	// localhost and by any address it can always be reached. A request by another name
	// is refused, because any site can let a name of its own lead here; only
	// /livez, /readyz and /metrics answer all the same, unless the server listens on
	// loopback.
	Hosts []string `env:"ADMIN_HOSTS"`
	// MaxAge is how old the oldest message that was read and has no outcome may be
	// before the relay is not ready. Waiting messages are deferred within seconds,
	// and that is an outcome here.
	MaxAge time.Duration `env:"READY_MAX_AGE, default=30s"`
	// StuckAfter is how long a loop of the process may be at one piece of work
	// before the relay is not alive. Twice INFRAI_REQUEST_TIMEOUT and twice
	// RELAY_DRAIN_TIMEOUT count instead if they are longer.
	StuckAfter time.Duration `env:"STUCK_AFTER, default=2m"`

	// Token is what an operator must know to change something on the page for
	// people: to redrive or discard dead letters, to pause or resume queues. It has
	// at least 16 characters. Without it, and without TokenFile, nobody can change
	// anything there.
	Token secret.Text `env:"ADMIN_TOKEN"`
	// TokenFile is a file that holds the token. It is read again each time, so the
	// token is changed without a restart; that ends the sessions of all who have
	// signed in.
	TokenFile string `env:"ADMIN_TOKEN_FILE"`
	// ShowPayloads lets the page show the payload of a dead letter. Everybody who
	// reaches the page can read it then.
	ShowPayloads bool `env:"ADMIN_SHOW_PAYLOADS, default=false"`

	// TrustWindow is relay.Config's: nothing is sent while the server's last word
	// is older.
	TrustWindow time.Duration
	// HolderPatience is how long the server may hear nothing from the relay for
	// which a standby waits.
	HolderPatience time.Duration
	// LongestWork is how long a piece of work may take that is all right.
	LongestWork time.Duration
}

// off is the value of Config.Listen for no server.
const off = "off"

// Enabled reports whether there is to be a server.
func (c *Config) Enabled() bool { return c.Listen != off }

// Changes reports whether somebody may change something on the page.
func (c *Config) Changes() bool { return c.Enabled() && (c.Token.Set() || c.TokenFile != "") }

// Validate returns everything that is wrong with the settings, or nil.
func (c *Config) Validate() error {
	return errors.Join(
		c.validateListen(),
		c.validateHosts(),
		atLeast("READY_MAX_AGE", c.MaxAge, time.Second),
		atLeast("STUCK_AFTER", c.StuckAfter, leastStuckAfter),
		c.validateToken(),
	)
}

// leastStuckAfter leaves room for what a loop may do by itself: an attempt to
// write, for instance.
const leastStuckAfter = 30 * time.Second

func (c *Config) validateToken() error {
	switch {
	case c.Token.Set() && c.TokenFile != "":
		return errors.New("ADMIN_TOKEN and ADMIN_TOKEN_FILE are both set, want one")
	case c.Token.Set() && len(c.Token.Reveal()) < leastToken:
		return fmt.Errorf("ADMIN_TOKEN is shorter than %d characters", leastToken)
	}
	return nil
}

func (c *Config) validateListen() error {
	if !c.Enabled() {
		return nil
	}
	_, port, err := net.SplitHostPort(c.Listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("ADMIN_LISTEN is %q: want host:port such as 127.0.0.1:9464, or off", c.Listen)
	}
	return nil
}

func (c *Config) validateHosts() error {
	var errs []error
	for _, host := range c.Hosts {
		if host == "" || strings.ContainsAny(host, ":/@* ") {
			errs = append(errs, fmt.Errorf("ADMIN_HOSTS has %q: want host names such as relay.example.com, without scheme and port", host))
		}
	}
	return errors.Join(errs...)
}

func atLeast(variable string, d, least time.Duration) error {
	if d < least {
		return fmt.Errorf("%s is %v: want at least %v", variable, d, least)
	}
	return nil
}

// stuckAfter is how long a piece of work may take.
func (c *Config) stuckAfter() time.Duration { return max(c.StuckAfter, 2*c.LongestWork) }
