package judge_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outbox-relay/outbox-relay/internal/judge"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
)

var (
	soakTime = flag.Duration("soak.time", 15*time.Second, "how long things go wrong")
	soakSeed = flag.Uint64("soak.seed", 8, "what decides what happens; 0 draws one")
	soakLogs = flag.String("soak.logs", "", "folder for the logs of the relays; empty keeps none")
)

func TestMain(m *testing.M) { pgtest.Main(m, func() error { return goleak.Find() }) }

// brisk are settings under which what takes minutes in production takes a
// second.
var brisk = map[string]string{
	"RELAY_RETRY_MIN": "10ms", "RELAY_RETRY_MAX": "100ms", "RELAY_PROBE_MIN": "20ms", "RELAY_PROBE_MAX": "200ms",
	"RELAY_DEFER_AFTER": "200ms", "RELAY_OVERFLOW_AFTER": "400ms", "RELAY_DEFER_MIN": "50ms", "RELAY_DEFER_MAX": "300ms",
	"INFRAI_REQUEST_TIMEOUT": "1s", "INFRAI_IDLE_TIMEOUT": "5s", "RELAY_WINDOW_MESSAGES": "500", "RELAY_MAX_IN_FLIGHT_PER_QUEUE": "16",
	"RELAY_STATUS_INTERVAL": "1s", "RELAY_SILENCE_TIMEOUT": "3s", "RELAY_WAL_SENDER_TIMEOUT": "3s", "RELAY_LEASE_INTERVAL": "500ms",
	"RELAY_TRUST_WINDOW": "2s", "RELAY_RECONNECT_MAX": "2s", "RELAY_SWEEP_INTERVAL": "5s", "RELAY_SHUTDOWN_PAUSE": "500ms", "RELAY_STANDBY_INTERVAL": "100ms",
	"RELAY_MAX_ATTEMPTS": "12",
}

// usual are the defaults, except for waits that would be longer than the test.
var usual = map[string]string{
	"RELAY_DEFER_MAX": "10s", "RELAY_RECONNECT_MAX": "5s", "INFRAI_REQUEST_TIMEOUT": "2s", "INFRAI_IDLE_TIMEOUT": "5s", "RELAY_MAX_ATTEMPTS": "12",
}

// raceScale is how much longer everything may take with the race detector.
const raceScale = 3

// maxMemory is what a relay may take, unless it has the race detector.
const maxMemory = 100 << 20

// APP-06: everything goes wrong at once, and nothing is lost, doubled or out of
// order.
func TestSoak(t *testing.T) {
	t.Parallel()
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64N(1_000_000) + 1
	}
	settings := usual
	if seed%3 != 0 {
		settings = brisk
	}
	t.Logf("seed %d: go test ./internal/judge -run TestSoak -soak.seed=%d -soak.time=%v", seed, seed, *soakTime)
	program, err := relaybin.Build()
	if err != nil {
		t.Fatal(err)
	}
	plain, err := relaybin.BuildPlain()
	if err != nil {
		t.Fatal(err)
	}
	cfg := judge.Config{
		Duration: *soakTime, Patience: 90 * time.Second, Scale: 1, Seed: seed, Writers: 30, Lanes: 200,
		Program: program, Settings: settings, Folder: logs(t, seed), Note: func(line string) { t.Log(line) },
	}
	if program == plain {
		cfg.MaxMemory = maxMemory
	} else {
		cfg.Scale = raceScale
	}
	cluster := pgtest.New(t, pgtest.Options{Settings: judge.Settings})
	report, err := judge.Run(t.Context(), cluster, cluster.Migrated(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(report.Table())
	for _, v := range report.Violations {
		t.Errorf("seed %d, %.1fs: %s: %s", seed, v.At.Seconds(), v.Kind, v.Text)
	}
	if report.Messages == 0 || report.Requests.AfterFailure == 0 {
		t.Error("nothing was written or nothing went wrong: the test shows nothing")
	}
}

func logs(t *testing.T, seed uint64) string {
	t.Helper()
	if *soakLogs == "" {
		return t.TempDir()
	}
	folder := filepath.Join(*soakLogs, fmt.Sprintf("seed-%d", seed))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	return folder
}
