package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

const (
	// slot is the default of the relay's settings.
	slot = "outbox_relay"
	// readyTimeout bounds each start, on a machine that has other things to do.
	readyTimeout = 30 * time.Second
	// stopTimeout is how long the relay may take for a clean stop.
	stopTimeout = 20 * time.Second
)

// stage is everything that the demo starts: a Postgres, the queue and a relay,
// and the folder that they write into.
type stage struct {
	program string
	folder  string
	cluster *pgtest.Cluster
	queue   *process
	relay   *process // the one that runs now
	relays  int      // how many were started

	databaseURL, queueURL string
}

// newStage makes an empty stage. It must be closed.
func newStage(program string) (*stage, error) {
	folder, err := os.MkdirTemp("", "outbox-demo-")
	if err != nil {
		return nil, err
	}
	// If this process is root, the server is not, and must get there.
	if err := os.Chmod(folder, 0o711); err != nil {
		return nil, errors.Join(err, os.Remove(folder))
	}
	return &stage{program: program, folder: folder}, nil
}

// startPostgres starts a server with an empty database.
func (s *stage) startPostgres(ctx context.Context) (err error) {
	s.cluster, err = pgtest.Start(ctx, pgtest.Options{Dir: filepath.Join(s.folder, "postgres")})
	if err != nil {
		return err
	}
	s.databaseURL = s.cluster.URL("postgres")
	return nil
}

// postgresVersion asks the server.
func (s *stage) postgresVersion(ctx context.Context) (string, error) {
	conn, err := pgx.Connect(ctx, s.databaseURL)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	var version string
	err = conn.QueryRow(ctx, `show server_version`).Scan(&version)
	version, _, _ = strings.Cut(version, " ") // behind it a distribution names itself
	return version, err
}

// migrate makes the outbox's tables.
func (s *stage) migrate(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, errors.New("timeout"))
	defer cancel()
	migration, err := s.start("migrate", []string{"DATABASE_URL=" + s.databaseURL}, "migrate", "up")
	if err != nil {
		return err
	}
	defer migration.kill()
	if code, err := migration.wait(ctx); err != nil || code != 0 {
		return errors.Join(err, migration.ended())
	}
	return nil
}

// startQueue starts the emulator, on whichever port is free.
func (s *stage) startQueue(ctx context.Context, queues ...string) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, errors.New("timeout"))
	defer cancel()
	s.queue, err = s.start("queue", []string{"EMULATOR_JOURNAL=keys"},
		"emulator", "--listen", "127.0.0.1:0", "--queue", strings.Join(queues, ","))
	if err != nil {
		return err
	}
	fields, err := s.queue.await(ctx, "emulator listening")
	if err != nil {
		return err
	}
	s.queueURL = fmt.Sprintf("http://%v", fields["address"])
	return nil
}

// startRelay starts a relay. It returns before the relay does anything.
func (s *stage) startRelay() (err error) {
	s.relays++
	s.relay, err = s.start(fmt.Sprintf("relay-%d", s.relays), []string{
		"DATABASE_URL=" + s.databaseURL,
		"RELAY_SLOT=" + slot,
		"RELAY_ADMIN_LISTEN=off", // the usual port may be somebody's
		"INFRAI_BASE_URL=" + s.queueURL,
		"INFRAI_API_KEY=" + apiKey,
	}, "run")
	return err
}

// start starts this program once more. It sees nothing of the environment that
// somebody may have prepared for a relay of his own.
func (s *stage) start(name string, env []string, args ...string) (*process, error) {
	return startProcess(s.folder, s.program, name, append(env, "RELAY_LOG_FORMAT=json"), args...)
}

// awaitRelay waits until a relay reads from the slot.
func (s *stage) awaitRelay(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, errors.New("timeout"))
	defer cancel()
	conn, err := pgx.Connect(ctx, s.databaseURL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var active bool
		err := conn.QueryRow(ctx, `select exists (
			select from pg_replication_slots where slot_name = $1 and active)`, slot).Scan(&active)
		if err != nil || active {
			return err
		}
		select {
		case <-tick.C:
		case <-s.relay.Done():
			return s.relay.ended()
		case <-ctx.Done():
			return fmt.Errorf("wait for the relay: %w", context.Cause(ctx))
		}
	}
}

// stopRelay asks the relay to stop, as a service manager does.
func (s *stage) stopRelay(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stopTimeout, errors.New("timeout"))
	defer cancel()
	code, err := s.relay.stop(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("the relay was asked to stop and ended with exit code %d", code)
	}
	return err
}

// close ends every process and removes the folder, but for the logs if they are
// to stay. It returns where they are; empty if there are none. It can be called
// on half a stage.
func (s *stage) close(keepLogs bool) (logs string, err error) {
	for _, c := range []*process{s.relay, s.queue} {
		if c != nil {
			c.kill()
		}
	}
	if s.cluster != nil {
		err = s.cluster.Close()
	}
	if !keepLogs {
		return "", errors.Join(err, os.RemoveAll(s.folder))
	}
	err = errors.Join(err, os.RemoveAll(filepath.Join(s.folder, "postgres", "data")))
	if os.Remove(s.folder) == nil {
		return "", err // it was empty
	}
	return s.folder, err
}
