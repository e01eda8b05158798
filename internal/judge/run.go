package judge

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/netfault"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// Config is what a run needs. There are no defaults.
type Config struct {
	// Duration is how long things go wrong; the end comes on top.
	Duration time.Duration
	// Patience is how long the end may take.
	Patience time.Duration
	// Seed decides what happens; who wins a race it does not.
	Seed uint64
	// Writers write at a time, under that many ordering keys, each of which has
	// one writer.
	Writers, Lanes int
	// Program is the built relay, Settings its environment beside the addresses.
	Program  string
	Settings map[string]string
	// Folder gets the logs of the relays.
	Folder string
	// MaxMemory is the resident memory in bytes that a relay may take; 0 is no
	// limit.
	MaxMemory int64
	// Note is told what happens, line by line.
	Note func(string)
}

const (
	applicationName = "judge"
	slot            = "judged"
	maxFiles        = 400
)

// run is what a run consists of.
type run struct {
	cfg           Config
	mood          mood
	cluster       *pgtest.Cluster
	url           string
	queue         *emulator.Server
	databaseProxy *netfault.Proxy
	queueProxy    *netfault.Proxy
	relays        *relays
	ledger        *ledger
	report        *Report
	read          uint64 // the last entry of the journal that the ledger has
}

// Run judges the relay on a migrated database of a cluster of its own. An error
// means that it could not; what it found is in the report.
func Run(ctx context.Context, cluster *pgtest.Cluster, database string, cfg Config) (*Report, error) {
	r := &run{cfg: cfg, mood: newMood(cfg.Seed), cluster: cluster, report: newReport(cfg.Seed, cfg.Note)}
	r.ledger = newLedger(r.report, cfg.Writers, cfg.Lanes)
	r.queue = emulator.New(emulator.Config{Queues: queues, JournalEntries: 200_000, MaxKeys: 10_000_000})
	server := httptest.NewServer(r.queue)
	defer func() {
		r.queue.Close()
		server.CloseClientConnections()
		server.Close()
	}()
	closeProxies, err := r.connect(database, server.URL)
	if err != nil {
		return nil, err
	}
	defer closeProxies()
	defer r.killAll()
	for place := range r.relays.running {
		if err := r.relays.start(place); err != nil {
			return nil, err
		}
	}
	r.trouble(ctx)
	r.settle(ctx)
	r.stopAll(ctx)
	r.report.Statuses = r.queue.Counters().Statuses
	return r.report, ctx.Err()
}

// connect puts the proxies between the parts.
func (r *run) connect(database, queue string) (closeAll func(), err error) {
	address, err := url.Parse(database)
	if err != nil {
		return nil, err
	}
	if r.databaseProxy, err = netfault.New(address.Host); err != nil {
		return nil, err
	}
	if r.queueProxy, err = netfault.New(strings.TrimPrefix(queue, "http://")); err != nil {
		return nil, err
	}
	own, theirs := *address, *address
	query := own.Query()
	query.Set("application_name", applicationName)
	own.RawQuery, theirs.Host = query.Encode(), r.databaseProxy.Addr()
	r.url = own.String()
	env := maps.Clone(r.cfg.Settings)
	maps.Copy(env, map[string]string{
		"DATABASE_URL": theirs.String(), "RELAY_SLOT": slot, "INFRAI_BASE_URL": "http://" + r.queueProxy.Addr(),
		"INFRAI_API_KEY": "test-key", "RELAY_LOG_FORMAT": "json",
	})
	r.relays = &relays{program: r.cfg.Program, env: env, folder: r.cfg.Folder, report: r.report}
	return func() {
		_ = r.databaseProxy.Close()
		_ = r.queueProxy.Close()
	}, nil
}

// trouble lets the writers write and everything else go wrong, for as long as
// was asked. Everything is good again when it returns.
func (r *run) trouble(ctx context.Context) {
	r.cfg.Note(fmt.Sprintf("mood %+v", r.mood))
	r.poison()
	r.sprinkle(rand.New(rand.NewPCG(r.cfg.Seed, 4)))
	writing, enough := context.WithTimeout(ctx, r.cfg.Duration)
	defer enough()
	var group sync.WaitGroup
	for i := range r.cfg.Writers {
		w := &writer{number: i, url: r.url, ledger: r.ledger, pause: r.mood.pause, dice: rand.New(rand.NewPCG(r.cfg.Seed, 1000+uint64(i)))}
		for lane := i; lane < r.cfg.Lanes; lane += r.cfg.Writers {
			w.lanes = append(w.lanes, int32(lane))
		}
		group.Go(func() { w.run(ctx, writing) })
	}
	group.Go(func() { r.hurtRelays(writing) })
	group.Go(func() { r.hurtDatabase(writing) })
	group.Go(func() { r.hurtQueue(writing) })
	group.Go(func() { r.watch(writing) })
	group.Wait()
	r.queue.ClearFaults()
	r.poison()
}

// watch judges on the way.
func (r *run) watch(ctx context.Context) {
	for n := 0; wait(ctx, 500*time.Millisecond); n++ {
		r.readJournal()
		r.relays.measure()
		if n%10 == 0 {
			r.checkOrder()
			r.lookAtTables(ctx)
		}
	}
}

// checkOrder judges the order, and tells what the queue saw of what broke it.
func (r *run) checkOrder() {
	for _, keys := range r.ledger.checkOrder() {
		for _, e := range r.queue.Journal().Entries(0, 0) {
			if keys[e.Key] {
				r.cfg.Note(fmt.Sprintf("  %s request %d of %s from %s: status %d, %s, fault %d, %v",
					e.Time.UTC().Format("15:04:05.000"), e.Number, e.Key, e.Connection, e.Status, e.Outcome, e.Fault, e.MessageIDs))
			}
		}
	}
}

// readJournal gives the ledger what is new. An entry that the journal had to
// forget before would be a hole in the proof.
func (r *run) readJournal() {
	for {
		entries := r.queue.Journal().Entries(r.read, 10_000)
		if len(entries) == 0 {
			return
		}
		if entries[0].Number != r.read+1 {
			r.report.violate("judge", "the journal has forgotten entries %d to %d", r.read+1, entries[0].Number-1)
		}
		for i := range entries {
			r.ledger.saw(&entries[i])
		}
		r.read = entries[len(entries)-1].Number
	}
}

// lookAtTables notes how far the slot and the table are behind; a server that
// is away is asked another time.
func (r *run) lookAtTables(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, r.url)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if s, err := look(ctx, conn); err == nil {
		r.report.raise(&r.report.MaxRetained, s.retained)
		r.report.raise(&r.report.MaxDeferred, s.deferred)
	}
}

func (r *run) killAll() {
	for place := range r.relays.running {
		if p := r.relays.at(place); p != nil {
			_ = p.Kill()
		}
	}
}

// stopAll ends the relays in good order, and judges what they took.
func (r *run) stopAll(ctx context.Context) {
	for place := range r.relays.running {
		r.relays.stop(ctx, place)
	}
	if limit := r.cfg.MaxMemory; limit > 0 && r.report.MaxRSS > limit {
		r.report.violate("memory", "a relay took %d KiB", r.report.MaxRSS>>10)
	}
	if r.report.MaxFiles > maxFiles {
		r.report.violate("files", "a relay had %d descriptors", r.report.MaxFiles)
	}
	if r.report.MaxRSS == 0 && runtime.GOOS == "linux" {
		r.report.violate("judge", "no memory was measured")
	}
}
