package scenario_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
)

// plain starts the program without the race detector, as an operator would.
func plain(t *testing.T, env map[string]string, args ...string) *relaybin.Process {
	t.Helper()
	path, err := relaybin.BuildPlain()
	if err != nil {
		t.Fatal(err)
	}
	p, err := relaybin.Start(path, env, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Errorf("kill process %d: %v", p.PID(), err)
		}
		if t.Failed() {
			t.Logf("process %d wrote:\n%s", p.PID(), p.Log().Text())
		}
	})
	return p
}

// peak is the most memory that a process has had in use, in bytes.
func peak(t *testing.T, p *relaybin.Process) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kilobytes, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

// far is an emulated queue in a process of its own.
type far struct {
	t   *testing.T
	url string
}

func newFar(t *testing.T, queue string) *far {
	t.Helper()
	p := plain(t, map[string]string{
		"EMULATOR_JOURNAL": "keys", "EMULATOR_JOURNAL_ENTRIES": "1000000", "RELAY_LOG_FORMAT": "json",
	}, "emulator", "--listen", "127.0.0.1:0", "--queue", queue)
	address, _ := p.AwaitLog(t, "emulator listening").Fields["address"].(string)
	return &far{t, "http://" + address}
}

// get asks the emulator itself; read takes the answer.
func (f *far) get(path string, read func(io.Reader) error) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.url+"/_emulator/"+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := read(resp.Body); err != nil {
		f.t.Fatal(err)
	}
}

// counts are the numbers of accepted messages and of requests.
func (f *far) counts() (accepted, requests int) {
	f.t.Helper()
	var c struct {
		Accepted int `json:"accepted"`
		Requests int `json:"requests"`
	}
	f.get("counters", func(body io.Reader) error { return json.NewDecoder(body).Decode(&c) })
	return c.Accepted, c.Requests
}

func (f *far) await(n int) {
	f.t.Helper()
	pgtest.Eventually(f.t, 2*scenario.Patience, func() error {
		if got, _ := f.counts(); got < n {
			return fmt.Errorf("%d messages are accepted, want %d", got, n)
		}
		return nil
	})
}

// accepted are the keys in the order of their acceptance. The journal is printed
// one member a line: to take it apart by lines is ten times as fast as JSON.
func (f *far) accepted() (keys []string) {
	f.t.Helper()
	for next := "0"; ; {
		before, key := next, ""
		f.get("journal?limit=50000&after="+next, func(body io.Reader) error {
			lines := bufio.NewScanner(body)
			for lines.Scan() {
				name, value, _ := bytes.Cut(bytes.Trim(lines.Bytes(), " ,"), []byte(": "))
				switch string(name) {
				case `"key"`:
					key = string(bytes.Trim(value, `"`))
				case `"outcome"`:
					if string(value) == `"accepted"` {
						keys = append(keys, key)
					}
				case `"next"`:
					next = string(value)
				}
			}
			return lines.Err()
		})
		if next == before {
			return keys
		}
	}
}

// memory is what the relay may take whatever comes: about 100 MiB, and some more where
// a busy machine keeps the garbage collector waiting.
const memory = 128 << 20

// CDC-05: one transaction of 200,000 messages. Memory stays bounded, no timeout
// starts it over, and after a kill half-way only what was in hand comes twice.
func TestCDC05_HugeTransaction(t *testing.T) {
	t.Parallel()
	const size, lanes, window = 200_000, 100, 8192
	w := scenario.New(t)
	queue := newFar(t, scenario.QueueName)
	w.Env["INFRAI_BASE_URL"], w.Env["RELAY_LOG_LEVEL"] = queue.url, "info"
	first := plain(t, w.Env, "run")
	first.AwaitLog(t, "session began")
	w.Exec(`insert into outbox.messages (key, queue, ordering_key, payload)
		select 'big-' || i, 'orders', 'lane' || i % $2, jsonb_build_object('n', i, 'filler', repeat('x', 900))
		from generate_series(0, $1 - 1) i`, size, lanes)
	queue.await(size / 10)
	small := scenario.Batch("small", 20, "small")
	w.Insert(small...)
	queue.await(size / 2)
	before := peak(t, first)
	kill(t, first)
	second := plain(t, w.Env, "run")
	queue.await(size + len(small))
	w.AwaitMarked()
	w.AwaitSlot()
	after := peak(t, second)
	t.Logf("the relay took %d MiB, and %d MiB after its restart", before>>20, after>>20)
	if before > memory || after > memory {
		t.Errorf("want at most %d MiB", memory>>20)
	}
	pgtest.Eventually(t, scenario.Patience, func() error { // the slot passes what is deferred
		if marked := w.Count(`select count(*) from outbox.dispatched`); marked != size+int64(len(small)) {
			return fmt.Errorf("%d messages are marked, want %d", marked, size+len(small))
		}
		return nil
	})
	if accepted, requests := queue.counts(); requests-accepted > window {
		t.Errorf("%d requests for %d messages: more came twice than were in hand", requests, accepted)
	}
	last := map[int]int{}
	keys := queue.accepted()
	if len(keys) != size+len(small) {
		t.Errorf("the journal has %d accepted keys, want %d", len(keys), size+len(small))
	}
	for _, key := range keys {
		var n int
		if _, err := fmt.Sscanf(key, "big-%d", &n); err != nil {
			continue
		}
		if before, ok := last[n%lanes]; ok && n != before+lanes || !ok && n >= lanes {
			t.Fatalf("message %d of its lane was accepted after %d", n, before)
		}
		last[n%lanes] = n
	}
}
