package drill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

const (
	// Patience bounds each wait; it only ends broken drills.
	Patience = time.Minute
	// limit bounds a drill.
	limit = 5 * time.Minute
	// apiKey is what everybody shows to the queue, which takes any.
	apiKey = "drill"
	// noPause is for programs that are built with the race detector: without it
	// they wait a second at their end.
	noPause = "atexit_sleep_ms=0"
)

// Stage is all that a drill has: a database, a queue, a relay, and the time. A
// *Stage is also a [TB].
type Stage struct {
	TB

	// URL is the database, as superuser, and DB connections to it.
	URL string
	DB  *pgxpool.Pool
	// Queue is the emulator, QueueURL where it listens.
	Queue    *emulator.Server
	QueueURL string
	// Relay is the relay that was started last.
	Relay *relaybin.Process

	drill  Drill
	line   func(line string)
	ctx    context.Context //nolint:containedctx // the drill's own, as that of a test
	proofs int
}

func newStage(ctx context.Context, t TB, d Drill, say func(string)) *Stage {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("the drill takes too long"))
	t.Cleanup(cancel)
	return &Stage{TB: t, drill: d, ctx: ctx, line: say}
}

// Context ends when the drill is stopped or takes too long. It is for the calls
// of the drill itself: the application's parts end earlier, at the drill's end.
func (s *Stage) Context() context.Context { return s.ctx }

// build makes what the drill needs.
func (s *Stage) build() {
	s.Helper()
	s.startPostgres()
	s.startQueue()
	s.CLI("migrate", "up")
	s.Exec(s.drill.Tables)
	for _, q := range s.drill.Queues {
		s.provision(q)
	}
	s.StartRelay()
}

func (s *Stage) startPostgres() {
	s.Helper()
	s.URL = pgtest.New(s).URL("postgres")
	config, err := pgxpool.ParseConfig(s.URL)
	s.Must(err)
	config.MaxConns = 40 // many may stand still at once, and the drill looks at them
	pool, err := pgxpool.NewWithConfig(s.ctx, config)
	s.Must(err)
	s.Cleanup(pool.Close)
	s.DB = pool
	var version string
	s.Must(pool.QueryRow(s.ctx, `select split_part(current_setting('server_version'), ' ', 1)`).Scan(&version))
	s.Say("Postgres %s, throwaway, with the outbox", version)
}

func (s *Stage) startQueue() {
	s.Helper()
	s.Queue = emulator.New(emulator.Config{})
	s.Queue.Clock().Freeze()
	s.Cleanup(s.Queue.Close)
	s.QueueURL = s.Serve(s.Queue)
	s.Say("an Infrai queue, emulated, at %s", s.QueueURL)
	s.Say("time stands still, and passes when it is told to: the queue's clock is moved, and claims are made older")
}

// Serve serves over HTTP on a free port of the loopback interface until the
// drill's end, and returns the address.
func (s *Stage) Serve(handler http.Handler) (url string) {
	s.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.Must(err)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: Patience}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // it says that it was closed
	}()
	s.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return "http://" + listener.Addr().String()
}

// Folder is an empty folder that is removed at the drill's end.
func (s *Stage) Folder() string {
	s.Helper()
	folder, err := os.MkdirTemp("", "drill-")
	s.Must(err)
	s.Cleanup(func() { _ = os.RemoveAll(folder) }) // a folder for temporary files: what is left there goes anyway
	return folder
}

// Env are the settings of the application's own processes.
func (s *Stage) Env() map[string]string {
	return map[string]string{"DATABASE_URL": s.URL, "INFRAI_BASE_URL": s.QueueURL, "INFRAI_API_KEY": apiKey}
}

// relayEnv are the settings of the relay.
func (s *Stage) relayEnv() map[string]string {
	env := s.Env()
	env["RELAY_LOG_FORMAT"] = "json"
	env["GORACE"] = noPause
	maps.Copy(env, s.drill.Relay)
	return env
}

// StartRelay starts a relay and waits until it works.
func (s *Stage) StartRelay() {
	s.Helper()
	s.Relay = relaybin.Run(s, s.relayEnv(), "run")
	s.Relay.AwaitLog(s, "session began")
	s.Say("a relay, process %d", s.Relay.PID())
}

// StopRelay stops the relay as a service manager does.
func (s *Stage) StopRelay() {
	s.Helper()
	if code := s.Stop(s.Relay); code != 0 {
		s.Fatalf("the relay was asked to stop and ended with exit code %d", code)
	}
}

// CLI runs outbox-relay with the relay's settings, as an operator does, and
// returns what it prints. It ends the drill if the exit code is not 0.
func (s *Stage) CLI(args ...string) (output string) {
	s.Helper()
	output, code := s.TryCLI(args...)
	if code != 0 {
		s.Fatalf("outbox-relay %s ended with exit code %d", strings.Join(args, " "), code)
	}
	return output
}

// TryCLI is CLI for commands that may end with another exit code.
func (s *Stage) TryCLI(args ...string) (output string, code int) {
	s.Helper()
	p := relaybin.Run(s, s.relayEnv(), args...) // the first one is built, which takes its time
	ctx, cancel := context.WithTimeout(s.ctx, Patience)
	defer cancel()
	code, err := p.Wait(ctx)
	if err != nil {
		s.Fatalf("outbox-relay %s: %v", strings.Join(args, " "), err)
	}
	return p.Stdout(), code
}

// Go runs a part of the application until the drill's end, or until the function
// that it returns is called, which waits for it. A part that ends with an error,
// or before it was asked to, fails the drill.
func (s *Stage) Go(name string, part func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := part(ctx); err != nil {
			s.Errorf("%s: %v", name, err)
		} else if ctx.Err() == nil {
			s.Errorf("%s ended by itself", name)
		}
	}()
	stop = func() {
		cancel()
		<-ended
	}
	s.Cleanup(stop)
	return stop
}

// Must ends the drill if there is an error.
func (s *Stage) Must(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%v", err)
	}
}

func (s *Stage) say(format string, args ...any) { s.line(fmt.Sprintf(format, args...)) }
