package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/relay"
)

// Bounds of one request. What is asked for is small, and so is the answer.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 15 * time.Second
	idleTimeout   = time.Minute
	headerBytes   = 16 << 10
	// goodbye is how long requests may take that are under way at the end.
	goodbye = 2 * time.Second
)

// Server answers questions about a relay.
type Server struct {
	cfg      Config
	log      *zap.Logger
	mux      *http.ServeMux
	lookout  lookout
	listener net.Listener
	life     context.Context // of Run
	// warnings tells what others have found, seen what they have read; nil without.
	warnings func() []Finding
	seen     func(now time.Time) *status.Report
	requests requests
	history  history
	// background runs beside the answers, until Run's ctx ends.
	background []func(context.Context)
}

// New returns a server for the relay that state describes. Look reads from the
// database what /status and the page show of it. It does not listen yet.
func New(cfg Config, state func() relay.State, look func(context.Context) (*Look, error), log *zap.Logger) *Server {
	s := &Server{cfg: cfg, log: log.Named("admin"), mux: http.NewServeMux()}
	s.lookout = lookout{look: func(ctx context.Context) (any, error) { return look(ctx) }, age: brief, timeout: lookTimeout}
	s.Handle("GET /livez", s.health(func() Verdict {
		now := state()
		return Live(&s.cfg, &now)
	}))
	s.Handle("GET /readyz", s.health(func() Verdict {
		now := state()
		return s.ready(&now)
	}))
	s.Handle("GET /status", s.status(state))
	return s
}

// Warn adds the findings of somebody else to the warnings that /readyz, /status and
// the page show. It is for the time before Run; find is called at any time, by
// many at once, and returns what it knows.
func (s *Server) Warn(find func() []Finding) { s.warnings = find }

// ready is [Ready] by the newest report, with what the last minute has shown, and what
// others have found.
func (s *Server) ready(state *relay.State) Verdict {
	return s.readyBy(state, s.known(time.Now(), knownFor))
}

// readyBy is ready by this report, which may be nil.
func (s *Server) readyBy(state *relay.State, report *status.Report) Verdict {
	e := newExaminer(&s.cfg, state)
	e.report = report
	e.examine()
	e.requests(s.requests.lately())
	v := e.verdict()
	if s.warnings != nil {
		v.Warnings = append(v.Warnings, s.warnings()...)
	}
	return v
}

// Handle adds a handler for a pattern of [http.ServeMux]. It is for the time
// before Run.
func (s *Server) Handle(pattern string, handler http.Handler) {
	s.mux.Handle(pattern, noStore(handler))
}

// noStore keeps answers out of caches: they are about this moment.
func noStore(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// Listen takes the address of the settings.
func (s *Server) Listen(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("RELAY_ADMIN_LISTEN is %s: %w; another relay on this machine? choose another port, or off", s.cfg.Listen, err)
	}
	s.listener = listener
	s.log.Info("admin server listens", zap.String("address", s.Addr()))
	return nil
}

// Addr is the address where the server listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Run answers until ctx ends, which is not an error. Listen comes before it.
func (s *Server) Run(ctx context.Context) error {
	defer s.lookout.tasks.Wait()
	var beside sync.WaitGroup
	defer beside.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end() // also when the listener fails
	s.life = ctx
	for _, run := range s.background {
		beside.Go(func() { run(ctx) })
	}
	server := &http.Server{
		Handler:           s.named(s.mux),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytes,
		ErrorLog:          zap.NewStdLog(zap.NewNop()), // what clients do wrong is theirs
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(s.listener)
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("admin server: %w", err)
}
