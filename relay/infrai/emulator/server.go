package emulator

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// Server is an emulated queue. It is an http.Handler and safe for concurrent use.
type Server struct {
	cfg      Config
	log      *zap.Logger
	run      uint32
	clock    Clock
	settings atomic.Pointer[Settings]
	limiter  atomic.Pointer[rate.Limiter]
	faults   faults
	journal  *Journal
	counters *counters
	control  http.Handler
	closing  context.Context
	close    context.CancelFunc

	mu       sync.Mutex
	queues   map[string]*queue
	sequence uint64
	keys     map[*route]*keyring
	inFlight map[string]bool // keys whose request is being handled

	deliveries []Delivery // in the order in which they were given

	oddities sync.Map // unknown fields that were logged
}

// Option changes how a [Server] is made.
type Option func(*Server)

// WithLogger logs what a developer may want to know: unknown fields, and a
// change of settings, faults and clock. Without it nothing is logged.
func WithLogger(log *zap.Logger) Option {
	return func(s *Server) { s.log = log.Named("emulator") }
}

// New makes an emulator. It panics if cfg is not valid, as a test would want;
// [Config.Validate] tells before.
func New(cfg Config, options ...Option) *Server {
	if err := cfg.Validate(); err != nil {
		panic("emulator: " + err.Error())
	}
	s := &Server{
		cfg: cfg.withDefaults(), log: zap.NewNop(), run: rand.Uint32(),
		queues: map[string]*queue{}, keys: map[*route]*keyring{}, inFlight: map[string]bool{},
	}
	for _, option := range options {
		option(s)
	}
	s.journal = newJournal(s.cfg.JournalEntries, s.cfg.JournalBytes)
	s.counters = newCounters()
	s.control = s.controlRoutes()
	s.closing, s.close = context.WithCancel(context.Background())
	s.apply(s.cfg.Settings)
	for _, r := range routes {
		s.keys[r] = &keyring{}
	}
	for _, name := range s.cfg.Queues {
		s.queues[name] = newQueue(s.defaultSettings(name), s.clock.Now())
	}
	return s
}

// Close ends the answers that hang or drip.
func (s *Server) Close() { s.close() }

// Clock is the time of the queue.
func (s *Server) Clock() *Clock { return &s.clock }

// Journal is the list of the requests that came in.
func (s *Server) Journal() *Journal { return s.journal }

// Settings returns the settings of now.
func (s *Server) Settings() Settings { return *s.settings.Load() }

// SetSettings changes the settings for all requests to come.
func (s *Server) SetSettings(settings Settings) error {
	if err := settings.Validate(); err != nil {
		return err
	}
	s.apply(settings.withDefaults())
	return nil
}

func (s *Server) apply(settings Settings) {
	limit := rate.Inf
	if settings.RateLimit > 0 {
		limit = rate.Limit(settings.RateLimit)
	}
	s.limiter.Store(rate.NewLimiter(limit, max(settings.RateLimit, 1)))
	s.settings.Store(&settings)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	switch {
	case strings.HasPrefix(path, controlPrefix):
		s.control.ServeHTTP(w, r)
	case path == discoveryPath || strings.HasPrefix(path, discoveryPath+"/"):
		s.serveCall(w, r, discoveryRoute, "")
	default:
		route, queue := findRoute(path)
		s.serveCall(w, r, route, queue)
	}
}

// serveCall takes a call of the queue through reading, faults, handling and
// answering.
func (s *Server) serveCall(w http.ResponseWriter, r *http.Request, route *route, queue string) {
	c := calls.Get().(*call)
	defer c.free()
	c.request, c.route, c.queue, c.discard = r, route, queue, s.cfg.Discard
	c.settings, c.started, c.now = s.settings.Load(), time.Now(), s.clock.Now()

	refusal, err := c.read()
	if err != nil {
		panic(http.ErrAbortHandler) // the client went away or never finished
	}
	if !s.enter(c) {
		s.reply(w, c, refuse(http.StatusConflict, codeKeyInFlight, "a request with this key is being handled"))
		return
	}
	defer s.leave(c)
	if f := s.faults.match(c); f != nil {
		s.misbehave(w, c, f, refusal)
		return
	}
	s.reply(w, c, s.handle(c, refusal))
}

// enter notes that a key is being handled and reports whether it was free.
func (s *Server) enter(c *call) bool {
	if c.settings.KeyInFlight != "409" || c.key == "" {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight[c.key] {
		return false
	}
	s.inFlight[c.key] = true
	return true
}

func (s *Server) leave(c *call) {
	if c.settings.KeyInFlight != "409" || c.key == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.inFlight, c.key)
}

// ListenAndServe serves an emulator on addr until ctx ends, which is not an
// error.
func ListenAndServe(ctx context.Context, addr string, cfg Config, log *zap.Logger) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return Serve(ctx, listener, cfg, log)
}

// Serve is [ListenAndServe] on a listener that is there already; it closes it.
func Serve(ctx context.Context, listener net.Listener, cfg Config, log *zap.Logger) error {
	defer listener.Close()
	if err := cfg.Validate(); err != nil {
		return err
	}
	s := New(cfg, WithLogger(log))
	defer s.Close()
	web := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, Protocols: protocols(), ErrorLog: zap.NewStdLog(s.log)}
	stop := context.AfterFunc(ctx, func() {
		s.Close()
		_ = web.Close()
	})
	defer stop()
	s.log.Info("emulator listening", zap.String("address", listener.Addr().String()), zap.Strings("queues", cfg.Queues))
	if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// protocols adds HTTP/2 without TLS for clients that start with it.
func protocols() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return &p
}
