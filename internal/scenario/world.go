package scenario

import (
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
	"github.com/outbox-relay/outbox-relay/relay/poll"
)

// Patience is how long a test waits for what must happen; it only ends broken
// tests. On a busy machine the messages of a few ordering keys, one after the
// other, take minutes.
const Patience = 5 * time.Minute

// QueueName is the queue that exists from the start.
const QueueName = "orders"

// World is a database with the outbox, a queue, and the settings of a relay
// between them.
type World struct {
	t *testing.T

	// URL is the database, as superuser.
	URL string
	// Conn is a connection for what the test itself writes and looks at.
	Conn *pgx.Conn
	// Queue is the emulated queue, QueueURL where it listens.
	Queue    *emulator.Server
	QueueURL string
	// Env are the settings of every relay that is started.
	Env map[string]string

	mu        sync.Mutex
	committed []Message
	aborted   map[string]bool

	followed uint64          // the journal was read up to this entry
	requests map[string]int  // publish requests for a key
	taken    map[string]bool // keys that the queue accepted
}

// Message is what a test writes.
type Message struct {
	Key, OrderingKey, Queue, Payload string
}

// New makes a world on the shared cluster.
func New(t *testing.T) *World {
	t.Helper()
	return On(t, pgtest.Migrated(t))
}

// On makes a world in a migrated database.
func On(t *testing.T, url string) *World {
	t.Helper()
	w := &World{t: t, URL: url, aborted: map[string]bool{}, requests: map[string]int{}, taken: map[string]bool{}}
	w.Conn = w.Connect()
	w.Queue = emulator.New(emulator.Config{Queues: []string{QueueName}})
	server := httptest.NewServer(w.Queue)
	t.Cleanup(func() {
		w.Queue.Close()
		server.CloseClientConnections()
		server.Close()
	})
	w.QueueURL = server.URL
	w.Env = map[string]string{
		"DATABASE_URL": url, "RELAY_SLOT": SlotName(t), "RELAY_PUBLICATION": "outbox_relay",
		"INFRAI_BASE_URL": server.URL, "INFRAI_API_KEY": "test-key",
		"RELAY_LOG_LEVEL": "debug", "RELAY_LOG_FORMAT": "json",
	}
	return w
}

// SlotName is a slot of the test's own: slots are shared by all databases of a
// cluster.
func SlotName(t *testing.T) string {
	name := []byte("t_")
	for _, c := range []byte(t.Name()) {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			name = append(name, c)
		case 'A' <= c && c <= 'Z':
			name = append(name, c+'a'-'A')
		default:
			name = append(name, '_')
		}
	}
	return string(name[:min(len(name), 60)])
}

// Connect opens another connection, which ends with the test.
func (w *World) Connect() *pgx.Conn {
	w.t.Helper()
	conn, err := pgx.Connect(context.Background(), w.URL)
	if err != nil {
		w.t.Fatalf("connect: %v", err)
	}
	w.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Exec runs a statement.
func (w *World) Exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.Conn.Exec(context.Background(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// Count returns the one number that a query gives.
func (w *World) Count(sql string, args ...any) (n int64) {
	w.t.Helper()
	if err := w.Conn.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// Insert commits each message in a transaction of its own.
func (w *World) Insert(messages ...Message) {
	w.t.Helper()
	for _, m := range messages {
		w.Commit(w.Conn, m)
	}
}

// Commit writes messages in one transaction.
func (w *World) Commit(conn *pgx.Conn, messages ...Message) {
	w.t.Helper()
	if err := w.TryCommit(conn, messages...); err != nil {
		w.t.Fatalf("commit: %v", err)
	}
}

// TryCommit is Commit for tests that break the database. A commit whose answer
// was lost may have happened or not: neither counts.
func (w *World) TryCommit(conn *pgx.Conn, messages ...Message) error {
	ctx := context.Background()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	for _, m := range messages {
		if err := Write(ctx, tx, m); err != nil {
			_ = tx.Rollback(ctx)
			return err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	w.Committed(messages...)
	return nil
}

// Executor is a connection or a transaction.
type Executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Write inserts one message.
func Write(ctx context.Context, tx Executor, m Message) error {
	queue, payload := m.Queue, m.Payload
	if queue == "" {
		queue = QueueName
	}
	if payload == "" {
		payload = fmt.Sprintf(`{"key":%q}`, m.Key)
	}
	_, err := tx.Exec(ctx, `insert into outbox.messages (key, queue, ordering_key, payload)
		values ($1, $2, nullif($3, ''), $4)`, m.Key, queue, m.OrderingKey, payload)
	return err
}

// Committed remembers messages that the test committed itself, in the order of
// their commits.
func (w *World) Committed(messages ...Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.committed = append(w.committed, messages...)
}

// Keys are the committed keys.
func (w *World) Keys() []Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Message(nil), w.committed...)
}

// Batch makes n messages, spread over the ordering keys.
func Batch(prefix string, n int, orderingKeys ...string) []Message {
	messages := make([]Message, n)
	for i := range messages {
		messages[i].Key = fmt.Sprintf("%s-%d", prefix, i)
		if len(orderingKeys) > 0 {
			messages[i].OrderingKey = orderingKeys[i%len(orderingKeys)]
		}
	}
	return messages
}

// With sets settings for all relays to come and returns the world.
func (w *World) With(env map[string]string) *World {
	maps.Copy(w.Env, env)
	return w
}

// Relay is a relay that runs in the test's process.
type Relay struct {
	t     *testing.T
	stop  context.CancelFunc
	ended chan struct{}
	err   error
	logs  *observer.ObservedLogs
}

// Start runs a relay with the world's settings. It is stopped at the test's end.
func (w *World) Start() *Relay {
	w.t.Helper()
	cfg, err := config.Load(context.Background(), Lookuper(w.Env))
	if err != nil {
		w.t.Fatalf("settings: %v", err)
	}
	core, logs := observer.New(zapcore.DebugLevel)
	log := zap.New(core)
	publisher, err := infrai.New(cfg.Infrai, log)
	if err != nil {
		w.t.Fatalf("publisher: %v", err)
	}
	var source relay.Source = cdc.New(cfg.CDC, cfg.Database(), cfg.Replication(), log)
	if cfg.Polls() {
		source = poll.New(cfg.Poll, cfg.Database(), cfg.Replication(), log)
	}
	moving := relay.New(cfg.Relay, cfg.Database(), source, publisher, log)
	ctx, stop := context.WithCancel(context.Background())
	r := &Relay{t: w.t, stop: stop, ended: make(chan struct{}), logs: logs}
	go func() {
		defer close(r.ended)
		defer publisher.Close()
		r.err = moving.Run(ctx)
	}()
	w.t.Cleanup(func() {
		stop()
		<-r.ended
		if w.t.Failed() {
			for _, line := range logs.All() {
				if line.Message == "publish failed" {
					continue // one for every scripted fault
				}
				w.t.Logf("%s %s %s %s %v", line.Time.Format("05.000"), line.Level, line.LoggerName, line.Message, line.ContextMap())
			}
		}
	})
	return r
}

// Stop asks the relay to stop and returns what Run returned.
func (r *Relay) Stop() error {
	r.stop()
	<-r.ended
	return r.err
}

// Ended is closed once the relay has ended, and Err is why.
func (r *Relay) Ended() <-chan struct{} { return r.ended }

// Err is what Run returned, after it ended.
func (r *Relay) Err() error { <-r.ended; return r.err }

// Logs are the lines so far.
func (r *Relay) Logs() *observer.ObservedLogs { return r.logs }

// AwaitLog waits for a line with this message.
func (r *Relay) AwaitLog(message string) {
	r.t.Helper()
	pgtest.Eventually(r.t, Patience, func() error {
		if r.logs.FilterMessage(message).Len() == 0 {
			return fmt.Errorf("no line %q in the log", message)
		}
		return nil
	})
}

// Lookuper is an environment.
type Lookuper map[string]string

// Lookup implements envconfig.Lookuper.
func (l Lookuper) Lookup(name string) (string, bool) {
	value, ok := l[name]
	return value, ok
}

// Alive returns nil while the relay runs.
func (r *Relay) Alive() error {
	select {
	case <-r.ended:
		return fmt.Errorf("the relay ended: %w", r.err)
	default:
		return nil
	}
}

// Forget takes keys out of what is expected to arrive.
func (w *World) Forget(keys ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.committed = slices.DeleteFunc(w.committed, func(m Message) bool { return slices.Contains(keys, m.Key) })
	for _, key := range keys {
		w.aborted[key] = true
	}
}
