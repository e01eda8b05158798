package judge

import (
	"context"
	"maps"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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
	// Scale multiplies every bound on time, for programs and machines that are
	// slow; 1 is usual.
	Scale float64
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
	// limit, and none on its growth either.
	MaxMemory int64
	// Note is told what happens, line by line.
	Note func(string)
}

// Settings are what the judge needs of the server.
var Settings = map[string]string{"track_commit_timestamp": "on"}

const (
	applicationName = "judge"
	slot            = "judged"
	maxFiles        = 400
)

// run is what a run consists of.
type run struct {
	cfg     Config
	mood    mood
	cluster *pgtest.Cluster
	url     string
	queue   *emulator.Server
	script  *script
	relays  *relays
	ledger  *ledger
	history *history
	report  *Report
	watcher *watcher

	statementProxy, streamProxy, queueProxy *netfault.Proxy

	read     uint64          // the last entry of the journal that the ledger has
	hasty    map[string]bool // dead letters that were redriven too early
	told     int             // histories
	toldKeys []string

	slowly atomic.Bool  // writers write less
	sick   atomic.Int32 // the generation of messages that get sick now
	// peace is held by what goes wrong, for reading, and by who wants quiet.
	peace    struct{ infrastructure, queues sync.RWMutex }
	calmDown func() // ends the unrest of single requests
}

// Run judges the relay on a migrated database of a cluster of its own, which has
// the settings of [Settings]. An error means that it could not; what it found is
// in the report.
func Run(ctx context.Context, cluster *pgtest.Cluster, database string, cfg Config) (*Report, error) {
	r := newRun(cluster, cfg)
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
	feeling, enough := context.WithCancel(ctx)
	var feels sync.WaitGroup
	feels.Go(func() { r.feelMachine(feeling) })
	r.trouble(ctx)
	r.settle(ctx)
	enough()
	feels.Wait()
	r.stopAll(ctx)
	r.report.Statuses = r.queue.Counters().Statuses
	return r.report, ctx.Err()
}

func newRun(cluster *pgtest.Cluster, cfg Config) *run {
	r := &run{cfg: cfg, mood: newMood(cfg.Seed), cluster: cluster, report: newReport(cfg.Seed, cfg.Scale, cfg.Note), hasty: map[string]bool{}}
	r.ledger = newLedger(r.report, cfg.Writers, cfg.Lanes)
	r.history = r.ledger.history
	r.watcher = &watcher{run: r, caught: make([]moment, len(queues))}
	r.queue = emulator.New(emulator.Config{Queues: queues, JournalEntries: 200_000, MaxKeys: 10_000_000})
	r.script = &script{queue: r.queue, report: r.report, mood: r.mood, seed: cfg.Seed}
	return r
}

// connect puts the proxies between the parts.
func (r *run) connect(database, queue string) (closeAll func(), err error) {
	address, err := url.Parse(database)
	if err != nil {
		return nil, err
	}
	var proxies []*netfault.Proxy
	closeAll = func() {
		for _, p := range proxies {
			_ = p.Close()
		}
	}
	for _, p := range []struct {
		proxy  **netfault.Proxy
		target string
	}{
		{&r.statementProxy, address.Host}, {&r.streamProxy, address.Host}, {&r.queueProxy, strings.TrimPrefix(queue, "http://")},
	} {
		if *p.proxy, err = netfault.New(p.target); err != nil {
			closeAll()
			return nil, err
		}
		proxies = append(proxies, *p.proxy)
	}
	through := func(p *netfault.Proxy) string {
		theirs := *address
		theirs.Host = p.Addr()
		return theirs.String()
	}
	query := address.Query()
	query.Set("application_name", applicationName)
	own := *address
	own.RawQuery = query.Encode()
	r.url = own.String()
	env := maps.Clone(r.cfg.Settings)
	maps.Copy(env, map[string]string{
		"DATABASE_URL": through(r.statementProxy), "RELAY_REPLICATION_URL": through(r.streamProxy), "RELAY_SLOT": slot,
		"INFRAI_BASE_URL": "http://" + r.queueProxy.Addr(), "INFRAI_API_KEY": "test-key", "RELAY_LOG_FORMAT": "json",
	})
	r.relays = &relays{program: r.cfg.Program, env: env, folder: r.cfg.Folder, limits: r.cfg.MaxMemory > 0, report: r.report, history: r.history}
	return closeAll, nil
}

// trouble lets the writers write and everything else go wrong, for as long as
// was asked. Everything is good again when it returns.
func (r *run) trouble(ctx context.Context) {
	r.report.say("seed %d, mood %+v, bounds on time times %g", r.cfg.Seed, r.mood, r.cfg.Scale)
	r.script.infect(1)
	r.sick.Store(1)
	r.calmDown = r.history.beginQuietly(unrest)
	writing, enough := context.WithTimeout(ctx, r.cfg.Duration)
	defer enough()
	var group sync.WaitGroup
	for i := range r.cfg.Writers {
		w := &writer{number: i, url: r.url, ledger: r.ledger, seed: r.cfg.Seed, mood: r.mood, slowly: &r.slowly, sick: &r.sick}
		for lane := i; lane < r.cfg.Lanes; lane += r.cfg.Writers {
			w.lanes = append(w.lanes, int32(lane))
		}
		group.Go(func() { w.run(ctx, writing) })
	}
	for _, loop := range []func(context.Context){
		r.hurtRelays, r.hurtDatabase, r.hurtQueue, r.quietTimes, r.operators, r.watch,
	} {
		group.Go(func() { loop(writing) })
	}
	group.Wait()
	r.script.soften(true)
	r.calmDown()
	r.healLast()
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

func (r *run) killAll() {
	for place := range r.relays.running {
		if p := r.relays.at(place); p != nil {
			_ = p.Kill()
		}
	}
	r.relays.following.Wait()
}

// stopAll ends the relays in good order, and judges what they took.
func (r *run) stopAll(ctx context.Context) {
	r.relays.idle(ctx, r.scaled(idlePatience))
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
	if r.report.Bodies == 0 {
		r.report.violate("judge", "no body was compared")
	}
}
