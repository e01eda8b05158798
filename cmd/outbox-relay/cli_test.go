package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// patience bounds the waits of tests on a busy machine.
const patience = 60 * time.Second

func TestHelp_NamesVerbsAndExitCodes(t *testing.T) {
	t.Parallel()
	r := expectCode(t, nil, exitStopped, []string{"--help"},
		"run", "migrate", "grants", "doctor", "status", "emulator", "version", "DATABASE_URL")
	for _, c := range exitCodes {
		if line := fmt.Sprintf("  %-3d %s\n", c.code, c.meaning); !strings.Contains(r.out, line) {
			t.Errorf("help lacks %q", line)
		}
	}
	expectCode(t, nil, exitStopped, nil, "Usage:")
	expectCode(t, nil, exitUsage, []string{"migrate"}, "up", "status", "print")
}

// The page for operators has the same table as the help.
func TestOperationsPage_HasTheExitCodes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range exitCodes {
		if row := fmt.Sprintf("| %d | %s |", c.code, c.meaning); !strings.Contains(string(page), row) {
			t.Errorf("docs/operations.md lacks the row %q", row)
		}
	}
}

func TestUsage_IsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"rum"}, `unknown command "rum"; did you mean run?`},
		{[]string{"migrate", "stauts"}, "did you mean status?"},
		{[]string{"version", "now"}, `unexpected argument "now"`},
		{[]string{"run", "--slot", "x"}, "unknown flag: --slot"},
		{[]string{"grants", "print", "--database", "app", "--vendor", "acme"}, "acme"},
		{[]string{"migrate", "print", "--after", "-1"}, "--after is -1"},
		{[]string{"emulator", "--queue", "Not A Queue"}, "EMULATOR_QUEUES"},
	} {
		r := expectCode(t, nil, exitUsage, c.args, c.want)
		if r.out != "" {
			t.Errorf("%v writes to stdout: %s", c.args, r.out)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	expectCode(t, nil, exitStopped, []string{"version"}, "outbox-relay ", "go1.")
	r := expectCode(t, nil, exitStopped, []string{"version", "--json"})
	var v versionInfo
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatal(err)
	}
	if v.SchemaVersion != 1 || v.Version == "" || v.Go == "" || v.Platform == "" {
		t.Errorf("version is %+v", v)
	}
}

func TestSettings_AllErrorsAtOnce(t *testing.T) {
	t.Parallel()
	environment := settings{
		"RELAY_MAX_IN_FLIGHT": "many", "RELAY_SLOT": "My Slot", "RELAY_LOG_FORMAT": "xml", "INFRAI_BASE_URL": "ftp://queue",
	}
	r := expectCode(t, environment, exitUsage, []string{"run"},
		"DATABASE_URL", "INFRAI_API_KEY", "RELAY_MAX_IN_FLIGHT", "RELAY_SLOT", "RELAY_LOG_FORMAT", "INFRAI_BASE_URL", "hint: ")
	if r.out != "" {
		t.Errorf("writes to stdout: %s", r.out)
	}
}

// A misspelled setting is told of, and does not end up as a surprise in the
// database; nor is it forgotten where the right one is missing.
func TestSettings_Misspelled(t *testing.T) {
	t.Parallel()
	environment := settings{"RELAY_SHEMA": "events", "INFRAI_APIKEY": "x", "DATABASE_URL": "postgres://somebody@127.0.0.1:1/shop"}
	for _, args := range [][]string{{"migrate", "print"}, {"grants", "print"}} {
		r := expectCode(t, environment, exitStopped, args)
		if !strings.Contains(r.err, "RELAY_SHEMA is not a setting and has no effect; did you mean RELAY_SCHEMA?") {
			t.Errorf("%v tells %q", args, r.err)
		}
	}
	expectCode(t, environment, exitUsage, []string{"run"}, "INFRAI_API_KEY or INFRAI_API_KEY_FILE is needed", "did you mean INFRAI_API_KEY?")
}

// A verb asks for the settings that it uses, and for no others.
func TestSettings_OnlyWhatIsUsed(t *testing.T) {
	t.Parallel()
	expectCode(t, nil, exitStopped, []string{"migrate", "print"}, "create table")
	expectCode(t, nil, exitStopped, []string{"grants", "print", "--database", "app"}, "create role")
	expectCode(t, nil, exitUsage, []string{"grants", "print"}, "DATABASE_URL")
	for _, args := range [][]string{{"migrate", "up"}, {"migrate", "status"}, {"status"}, {"doctor"}} {
		r := expectCode(t, nil, exitUsage, args, "DATABASE_URL")
		if strings.Contains(r.err, "INFRAI") {
			t.Errorf("%v asks for the queue: %s", args, r.err)
		}
	}
}
