package deploy_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sethvargo/go-envconfig"

	"github.com/outbox-relay/outbox-relay/config"
)

const unitFile = "systemd/outbox-relay.service"

// exposure is how open the unit may be, in tenths of what systemd-analyze says:
// the network, and hardly anything else of the machine.
const exposure = "13"

// unitFor is the unit with a program that is there, in a folder of its own.
func unitFor(t *testing.T, change func(unit string) string) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), filepath.Base(unitFile))
	unit := strings.Replace(read(t, unitFile), "/usr/local/bin/outbox-relay", program, 1)
	if err := os.WriteFile(path, []byte(change(unit)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func asItIs(unit string) string { return unit }

// without leaves the lines out that begin with a setting; it is an expression.
func without(setting string) func(string) string {
	return func(unit string) string {
		return regexp.MustCompile(`(?m)^`+setting+`=.*\n`).ReplaceAllString(unit, "")
	}
}

// analyze runs systemd-analyze without a running systemd.
func analyze(t *testing.T, args ...string) (output string, err error) {
	t.Helper()
	var said bytes.Buffer
	command := exec.CommandContext(t.Context(), "systemd-analyze", args...)
	command.Env = append(os.Environ(), "SYSTEMD_LOG_LEVEL=warning", "SYSTEMD_PAGER=cat")
	command.Stdout, command.Stderr = &said, &said
	err = command.Run()
	return said.String(), err
}

// verify returns what systemd has to say about a unit: nothing, if all is well.
// For an unknown setting the exit code alone would be 0.
func verify(t *testing.T, unit string) string {
	t.Helper()
	said, err := analyze(t, "verify", "--recursive-errors=no", unit)
	if err != nil {
		said += err.Error()
	}
	return strings.TrimSpace(said)
}

func TestUnit_IsUnderstood(t *testing.T) {
	t.Parallel()
	if said := verify(t, unitFor(t, asItIs)); said != "" {
		t.Errorf("systemd does not understand it:\n%s", said)
	}
	misspelt := unitFor(t, func(unit string) string { return strings.Replace(unit, "WatchdogSec", "WatchdogSeconds", 1) })
	if said := verify(t, misspelt); !strings.Contains(said, "WatchdogSeconds") {
		t.Errorf("the check does not see a misspelt setting: %q", said)
	}
}

func TestUnit_IsClosed(t *testing.T) {
	t.Parallel()
	security := func(change func(string) string) (string, error) {
		return analyze(t, "security", "--offline=true", "--threshold="+exposure, unitFor(t, change))
	}
	if said, err := security(asItIs); err != nil {
		t.Errorf("the unit is too open (%v):\n%s", err, said)
	}
	for _, setting := range []string{"(DynamicUser|User)", "SystemCallFilter", "CapabilityBoundingSet", "PrivateDevices"} {
		if _, err := security(without(setting)); err == nil {
			t.Errorf("the check does not see that %s is missing", setting)
		}
	}
}

// The unit leaves a relay the time that its drain takes.
func TestUnit_WaitsForTheDrain(t *testing.T) {
	t.Parallel()
	unit := read(t, unitFile)
	stop, err := time.ParseDuration(setting(t, unit, "TimeoutStopSec"))
	if err != nil {
		t.Fatal(err)
	}
	cfg, _ := config.Load(t.Context(), envconfig.MapLookuper(nil)) // the defaults
	const writes = 15 * time.Second                                // what cmd asks for beside the drain
	if least := cfg.Relay.DrainTimeout + writes; stop < least {
		t.Errorf("TimeoutStopSec is %s, want at least %s", stop, least)
	}
	if watchdog, err := time.ParseDuration(setting(t, unit, "WatchdogSec")); err != nil || watchdog < 10*time.Second {
		t.Errorf("WatchdogSec is %s (%v): a busy machine would be taken for a stuck relay", watchdog, err)
	}
}

// Each secret comes as a credential and is passed on by the name of its file.
func TestUnit_HandsSecretsOverAsFiles(t *testing.T) {
	t.Parallel()
	unit := read(t, unitFile)
	credentials := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^LoadCredential=(\w+):/etc/outbox-relay/\w+$`).FindAllStringSubmatch(unit, -1) {
		credentials[m[1]] = true
	}
	passed := regexp.MustCompile(`(?m)^Environment=(\w+)=(.*)$`).FindAllStringSubmatch(unit, -1)
	if len(passed) != len(credentials) || len(passed) != 2 {
		t.Errorf("%d credentials, %d variables: want 2 of each", len(credentials), len(passed))
	}
	for _, m := range passed {
		expectVariable(t, unitFile, m[1])
		if credential, ok := strings.CutPrefix(m[2], "%d/"); !ok || !credentials[credential] {
			t.Errorf("%s is %s, which is no credential", m[1], m[2])
		}
	}
}

// setting is the value of a setting that the unit has once.
func setting(t *testing.T, unit, name string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^`+name+`=(.*)$`).FindAllStringSubmatch(unit, -1)
	if len(found) != 1 {
		t.Fatalf("the unit has %s %d times", name, len(found))
	}
	return found[0][1]
}
