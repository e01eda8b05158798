package config

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/sethvargo/go-envconfig"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/internal/secret"
	"github.com/outbox-relay/outbox-relay/internal/tracing"
	"github.com/outbox-relay/outbox-relay/internal/verify"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
	"github.com/outbox-relay/outbox-relay/relay/poll"
)

// Config is everything that the environment says.
type Config struct {
	// DatabaseURL is the connection string of the database with the outbox, as
	// a URL or as key=value pairs. The relay's own statements use it. A host
	// that is not this machine needs TLS: sslmode=verify-full is the safe
	// choice, require encrypts without checking who answers. What it leaves out
	// is taken from libpq's PG* variables and from the password file, which is
	// read again for every new connection. With several hosts the relay works
	// on the one that is the primary. Options for connection pools
	// (pool_max_conns and the like) are ignored.
	DatabaseURL secret.Text `env:"DATABASE_URL"`
	// ReplicationURL is the connection string for reading the WAL, if it is not
	// DatabaseURL. It must lead to the server itself: most connection poolers
	// cannot pass a replication connection on. In poll mode it is the one for
	// reading the table, which must not be a pooler either.
	ReplicationURL secret.Text `env:"RELAY_REPLICATION_URL"`
	// DatabasePasswordFile is the absolute path of a file that holds the password
	// for both connection strings on one line. It wins over a password in them.
	// Like libpq's password file it is read again for every new connection, so a
	// password is changed in Postgres and in the file, and nothing is restarted.
	DatabasePasswordFile string `env:"RELAY_DATABASE_PASSWORD_FILE"`
	// AllowInsecureTLS lets connection strings with sslmode=disable, allow or
	// prefer (libpq's default) reach other machines. Everybody between the two
	// machines can then read the messages.
	AllowInsecureTLS bool `env:"RELAY_ALLOW_INSECURE_TLS, default=false"`
	// Schema is the schema of the outbox, taken as it is, capital letters
	// included.
	Schema string `env:"RELAY_SCHEMA, default=outbox"`
	// Mode is where messages are read: wal reads them from the WAL by a
	// replication slot, poll looks for them in the table, on a server that offers
	// no logical replication.
	Mode string `env:"RELAY_MODE, default=wal"`

	Log   Log          `env:", prefix=RELAY_LOG_"`
	CDC   cdc.Config   `env:", prefix=RELAY_"`
	Poll  poll.Config  `env:", prefix=RELAY_"`
	Relay relay.Config `env:", prefix=RELAY_"`
	Admin admin.Config `env:", prefix=RELAY_"`
	// Verify is the check that a relay makes of its outbox.
	Verify verify.Settings `env:", prefix=RELAY_"`
	Infrai infrai.Config   `env:", prefix=INFRAI_"`
	// Traces holds OpenTelemetry's own variables.
	Traces tracing.Config `env:", prefix=OTEL_"`

	database, replication *pgx.ConnConfig
	warnings              []string
}

// Part is a part of the settings. A verb asks for the parts that it uses.
type Part string

// The parts.
const (
	// Names are the names of things in the database, without a connection to it.
	Names Part = "names"
	// Database is the connection to the database; it includes Names.
	Database Part = "database"
	// Replication is what reading the WAL needs; it includes Database.
	Replication Part = "replication"
	// Queue is what publishing needs.
	Queue Part = "queue"
	// Admin is what the admin server needs, and who asks it; Replication includes
	// it.
	Admin Part = "admin"
)

// Load reads the environment. The parts that are named must be complete and
// right, all of them without a name; of the others only what is set must be
// readable. The only error is an [*Error], with which the Config holds what could
// be read.
func Load(ctx context.Context, environment envconfig.Lookuper, parts ...Part) (*Config, error) {
	if len(parts) == 0 {
		parts = []Part{Database, Replication, Queue}
	}
	c := new(Config)
	found := problems{variables: variables(c)}
	for _, v := range found.variables {
		found.add("", v.read(ctx, environment))
	}
	c.share()

	found.add("RELAY_LOG_", c.Log.Validate())
	replication := slices.Contains(parts, Replication)
	database := replication || slices.Contains(parts, Database)
	if database || slices.Contains(parts, Names) {
		found.add("", c.validateSchema())
		found.add("", c.validateMode())
	}
	if database {
		found.add("", c.connectDatabase())
	}
	if replication {
		found.add("", c.connectReplication())
		found.add("RELAY_", c.CDC.Validate())
		found.add("RELAY_", c.Poll.Validate())
		found.add("RELAY_", c.Relay.Validate())
		found.add("RELAY_", c.Verify.Validate())
		found.add("", c.validateTrust())
	}
	if replication || slices.Contains(parts, Admin) {
		found.add("RELAY_", c.Admin.Validate())
	}
	if slices.Contains(parts, Queue) {
		found.add("INFRAI_", c.Infrai.Validate())
	}
	return c, found.error()
}

// Database is how to connect to the database; the caller may change it. It is
// nil unless the part was loaded.
func (c *Config) Database() *pgx.ConnConfig { return copyOf(c.database) }

// Replication is how to open the replication connection, without the parameter
// that makes it one; the caller may change it. It is nil unless the part was
// loaded.
func (c *Config) Replication() *pgx.ConnConfig { return copyOf(c.replication) }

// Warnings says what is allowed and looks wrong, one line each.
func (c *Config) Warnings() []string { return slices.Clone(c.warnings) }

func copyOf(c *pgx.ConnConfig) *pgx.ConnConfig {
	if c == nil {
		return nil
	}
	return c.Copy()
}

func (c *Config) validateSchema() error {
	const most = 63 // bytes; Postgres cuts longer names off
	if c.Schema == "" || len(c.Schema) > most || strings.ContainsRune(c.Schema, 0) {
		return fmt.Errorf("RELAY_SCHEMA is %q: want a name of 1 to %d bytes", c.Schema, most)
	}
	return nil
}

func (c *Config) connectDatabase() (err error) {
	c.database, err = c.connection("DATABASE_URL", c.DatabaseURL)
	return err
}

func (c *Config) connectReplication() error {
	variable, url := "RELAY_REPLICATION_URL", c.ReplicationURL
	if !url.Set() {
		variable, url = "DATABASE_URL", c.DatabaseURL
	}
	connection, err := c.connection(variable, url)
	if err != nil {
		return err
	}
	c.replication = connection
	warning, err := checkPooler(variable, connection)
	if warning != "" {
		c.warnings = append(c.warnings, warning)
	}
	return err
}

// connection parses a connection string and checks that it is safe to use.
func (c *Config) connection(variable string, url secret.Text) (*pgx.ConnConfig, error) {
	if !url.Set() {
		return nil, fmt.Errorf("%s is not set: want a connection string such as postgres://outbox_relay@db.example:5432/app?sslmode=verify-full", variable)
	}
	connection, err := parseConnection(url.Reveal())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	if host := plaintextHost(connection); host != "" && !c.AllowInsecureTLS {
		return nil, fmt.Errorf("%s lets a connection to %s go without TLS (sslmode is disable, allow or prefer, the default): "+
			"add sslmode=verify-full, or set RELAY_ALLOW_INSECURE_TLS=true on a network that you trust", variable, host)
	}
	return connection, c.usePassword(connection, url.Reveal())
}
