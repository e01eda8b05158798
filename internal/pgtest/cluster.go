package pgtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/outbox-relay/outbox-relay/internal/child"
)

// Options are the choices for a cluster; the zero value is a good one.
type Options struct {
	// Settings override the server settings of every cluster.
	Settings map[string]string
	// Version is the major version, such as "18". Empty means the environment
	// variable PG, and without that any version.
	Version string
	// Dir is an empty or missing folder for the cluster, which Close keeps. If
	// this process is root, the server's user must get there, which keeps
	// testing.T.TempDir out. Empty means a temporary folder, which Close removes.
	Dir string
}

// Cluster is a Postgres cluster of one server. Its methods are not safe for
// concurrent use, except those that only tell something about it.
type Cluster struct {
	bin     string
	dir     string
	keep    bool // the folder is the caller's
	account *account
	port    int
	held    io.Closer // keeps the port for this cluster; nil before it has one
	server  *child.Process

	settings map[string]string // the caller's

	// cloning is held while a database is copied: Postgres copies none that
	// somebody is connected to.
	cloning  sync.Mutex
	template sync.Once
	migrated error // how making the template went
}

// Start makes a cluster and starts its server. It returns once the server takes
// connections. The caller closes the cluster.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	bin, err := binaries(cmp.Or(options.Version, os.Getenv("PG")))
	if err != nil {
		return nil, err
	}
	as, err := serverAccount()
	if err != nil {
		return nil, err
	}
	c := &Cluster{bin: bin, dir: options.Dir, keep: options.Dir != "", account: as}
	if err := c.create(ctx, options.Settings); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// create makes the folder, the cluster in it, and starts the server.
func (c *Cluster) create(ctx context.Context, settings map[string]string) error {
	if err := c.makeFolder(); err != nil {
		return err
	}
	if err := c.initdb(ctx); err != nil {
		return err
	}
	return c.startSomewhere(ctx, settings)
}

// startSomewhere starts the server on a free port. A port is free only until
// somebody else takes it, so it tries a few.
func (c *Cluster) startSomewhere(ctx context.Context, settings map[string]string) error {
	c.settings = settings
	var err error
	for range 5 {
		c.releasePort()
		if c.port, c.held, err = freePort(); err != nil {
			return err
		}
		if err := c.configure(settings); err != nil {
			return err
		}
		if err = c.Start(ctx); err == nil || ctx.Err() != nil || !c.logHas("Address already in use") {
			return err
		}
	}
	return err
}

func (c *Cluster) makeFolder() error {
	if c.dir == "" {
		dir, err := os.MkdirTemp("", "outbox-postgres-")
		if err != nil {
			return fmt.Errorf("make a folder for the cluster: %w", err)
		}
		c.dir = dir
	}
	// The server gets an absolute path: it does not start in our folder.
	dir, err := filepath.Abs(c.dir)
	if err != nil {
		return err
	}
	c.dir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if c.account == nil {
		return nil
	}
	return os.Chown(dir, c.account.uid, c.account.gid)
}

func (c *Cluster) initdb(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, c.Bin("initdb"), "--pgdata", c.data(), "--username", "postgres",
		"--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync")
	c.prepare(command)
	out, err := command.CombinedOutput()
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("initdb: %w: the server's user needs access to %s and %s and to every folder above them", err, c.bin, c.dir)
	}
	if err != nil {
		return fmt.Errorf("initdb with %s: %w: %s", c.bin, err, out)
	}
	return nil
}

// prepare sets the account, folder and environment of a program.
func (c *Cluster) prepare(command *exec.Cmd) {
	command.Dir = c.dir
	command.Env = environment(c.bin)
	command.SysProcAttr = attributes(c.account)
}

func (c *Cluster) configure(settings map[string]string) error {
	path := filepath.Join(c.data(), "postgresql.conf")
	return os.WriteFile(path, []byte(configuration(settings, c.port)), 0o600)
}

// freePort finds a free port below the range that systems give to outgoing
// connections, so that nobody takes it while the server is down for a restart. From
// other clusters, also of other processes, it is kept by a UDP socket of the same
// number.
func freePort() (int, io.Closer, error) {
	for range 100 {
		port := 20000 + rand.IntN(12000)
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		held, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		listener, err := net.Listen("tcp", address)
		if err == nil {
			return port, held, listener.Close()
		}
		_ = held.Close()
	}
	return 0, nil, errors.New("find a free port: none of 100")
}

func (c *Cluster) releasePort() {
	if c.held != nil {
		_ = c.held.Close()
		c.held = nil
	}
}

// Close ends the server and removes the cluster's folder, unless the caller
// named that.
func (c *Cluster) Close() error {
	err := c.Stop("immediate")
	if err != nil {
		err = errors.Join(err, c.Kill())
	}
	c.releasePort()
	if c.keep || c.dir == "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

// URL is the connection string of a database, as superuser.
func (c *Cluster) URL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User("postgres"),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Port is the TCP port on 127.0.0.1; it stays the same over restarts.
func (c *Cluster) Port() int { return c.port }

// Bin is the path of a program of this server's version, such as postgres. The
// packaged servers have few of them: no psql, no pg_basebackup.
func (c *Cluster) Bin(name string) string { return filepath.Join(c.bin, name) }

// data is the data folder of the server.
func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

// LogFile is the path of the server's log.
func (c *Cluster) LogFile() string { return filepath.Join(c.dir, "postgres.log") }
