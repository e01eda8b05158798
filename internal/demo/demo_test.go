package demo_test

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/relaybin"
)

// patience only ends broken tests.
const patience = 60 * time.Second

// start runs the verb demo with a folder of its own for temporary files.
func start(t *testing.T, args ...string) (p *relaybin.Process, folder string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "outbox-demo-test-") //nolint:usetesting // Postgres, as another user, must get into it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o711); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"TMPDIR": folder}
	for _, name := range []string{"PATH", "HOME", "PG", "OUTBOX_PG_BIN"} {
		env[name] = os.Getenv(name)
	}
	return relaybin.Run(t, env, append([]string{"demo"}, args...)...), folder
}

// leftovers are the names in a folder.
func leftovers(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

var process = regexp.MustCompile(`process (\d+)`)

// awaitProcess waits for the line that begins with a word and names a process.
func awaitProcess(t *testing.T, p *relaybin.Process, what string) (pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	line, _, err := p.Log().Await(ctx, 0, func(l relaybin.Line) bool {
		return strings.HasPrefix(strings.TrimSpace(l.Text), what) && process.MatchString(l.Text)
	})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	pid, err = strconv.Atoi(process.FindStringSubmatch(line.Text)[1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestDemo_AccountHolds(t *testing.T) {
	t.Parallel()
	p, folder := start(t, "--seconds", "3", "--seed", "1", "--json")
	p.AwaitExit(t, 0)
	var account struct {
		Holds   bool             `json:"holds"`
		Figures map[string]int64 `json:"figures"`
	}
	if err := json.Unmarshal([]byte(p.Stdout()), &account); err != nil {
		t.Fatalf("%v in %s", err, p.Stdout())
	}
	f := account.Figures
	if !account.Holds || f["messages_committed"] == 0 || f["accepted"] != f["messages_committed"] ||
		f["handled"] != f["accepted"] || f["marked"] != f["accepted"] || f["lost"]+f["phantom"]+f["out_of_order"] != 0 {
		t.Errorf("account is %s", p.Stdout())
	}
	if f["transactions_rolled_back"] == 0 || f["answers_lost"] == 0 || f["repeats"] == 0 || f["relay_kills"] != 2 {
		t.Errorf("nothing went wrong, so the account shows nothing: %s", p.Stdout())
	}
	if names := leftovers(t, folder); names != nil {
		t.Errorf("left behind: %v", names)
	}
}

func TestDemo_CtrlCEndsAllProcesses(t *testing.T) {
	t.Parallel()
	p, folder := start(t, "--seconds", "60", "--json")
	pids := []int{awaitProcess(t, p, "queue"), awaitProcess(t, p, "relay")}
	if err := p.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	p.AwaitExit(t, 1)
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("process %d is still there", pid)
		}
	}
	if names := leftovers(t, folder); names != nil {
		t.Errorf("left behind: %v", names)
	}
}

// A relay that ends by itself is the end of the demo, and the logs stay.
func TestDemo_RelayEndsByItself(t *testing.T) {
	t.Parallel()
	p, folder := start(t, "--seconds", "60", "--json")
	if err := syscall.Kill(awaitProcess(t, p, "relay"), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.AwaitExit(t, 1)
	log := p.Log().Lines()
	last := log[len(log)-1].Text
	if !strings.HasPrefix(last, "hint: the logs of relay, queue and Postgres are in "+folder) {
		t.Errorf("the last line is %q", last)
	}
	_, kept, _ := strings.Cut(last, " are in ")
	if names := strings.Join(leftovers(t, kept), " "); names != "migrate.log postgres queue.log relay-1.log" {
		t.Errorf("the folder of the logs has %s", names)
	}
}
