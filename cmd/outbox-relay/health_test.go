package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/relay/admin"
)

// The verb asks the relay with the same settings, from its first moment on. A
// relay that waits for its database is alive, and not ready.
func TestHealth(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	nobody := "postgres://relay@127.0.0.1:1/shop"
	waits := start(t, r.with("DATABASE_URL", nobody), "run")
	asked := settings{"RELAY_ADMIN_LISTEN": adminOf(t, waits)}
	waits.AwaitMessage(t, "database does not answer, waiting for it")
	expectCode(t, asked, exitUnexpected, []string{"health"}, "fail: starting", "fail starting: connect: ", "the answer is no")
	expectCode(t, asked, exitStopped, []string{"health", "--live"}, "ok: starting")
	waits.end()
	expectCode(t, asked, exitUnexpected, []string{"health", "--live"}, "ask the relay", "connection refused")

	runs := start(t, r.settings, "run")
	asked["RELAY_ADMIN_LISTEN"] = adminOf(t, runs)
	runs.AwaitMessage(t, "session began")
	expectCode(t, asked, exitStopped, []string{"health"}, "ok: active")
	var v admin.Verdict
	if got := expectCode(t, asked, exitStopped, []string{"health", "--json"}); json.Unmarshal([]byte(got.out), &v) != nil || !v.OK {
		t.Errorf("the JSON is %s", got.out)
	}
}

// adminOf is where the admin server of a relay listens.
func adminOf(t *testing.T, d *daemon) string {
	t.Helper()
	address, _ := d.AwaitMessage(t, "admin server listens").Fields["address"].(string)
	return address
}

func TestHealth_Settings(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"off", "127.0.0.1:0"} {
		expectCode(t, settings{"RELAY_ADMIN_LISTEN": listen}, exitUsage, []string{"health"}, "RELAY_ADMIN_LISTEN is "+listen)
	}
	expectCode(t, settings{"RELAY_ADMIN_LISTEN": "9464"}, exitUsage, []string{"health"}, `RELAY_ADMIN_LISTEN is "9464"`)
}

func TestAdminAddress(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		"127.0.0.1:9464": "127.0.0.1:9464", ":9464": "127.0.0.1:9464", "0.0.0.0:9464": "127.0.0.1:9464",
		"[::]:9464": "localhost:9464", "10.1.2.3:80": "10.1.2.3:80",
	} {
		if got, err := adminAddress(listen); got != want || err != nil {
			t.Errorf("%s: %s, %v, want %s", listen, got, err, want)
		}
	}
}

// A port that is taken is told at once, before anything else happens.
func TestRun_AdminPortTaken(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	r := newRig(t)
	expectCode(t, r.with("RELAY_ADMIN_LISTEN", taken.Addr().String()), exitUsage, []string{"run"}, "RELAY_ADMIN_LISTEN is "+taken.Addr().String(), "in use")
	if n := query[int](t, r.url, "select count(*)::int from pg_replication_slots where slot_name = $1", r.settings["RELAY_SLOT"]); n != 0 {
		t.Error("a slot was made")
	}
}

// /status has what the process knows and what the database says, and no secret.
func TestRun_Status(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := start(t, r.settings, "run")
	address := adminOf(t, d)
	d.AwaitMessage(t, "session began")
	r.insert(t, "one")
	r.awaitDispatched(t, 1)
	var body string
	pgtest.Eventually(t, patience, func() error { // a look at the database counts for a while
		body = fetch(t, "http://"+address+"/status")
		var s struct {
			Version  int
			Ready    admin.Verdict
			Relay    struct{ Phase, Slot string }
			Database struct {
				Error  string
				Report struct {
					Summary string
					Slot    struct{ Active bool }
				}
			}
		}
		if err := json.Unmarshal([]byte(body), &s); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		if s.Version != 1 || !s.Ready.OK || s.Relay.Phase != "active" || s.Relay.Slot != r.settings["RELAY_SLOT"] ||
			s.Database.Error != "" || s.Database.Report.Summary == "" || !s.Database.Report.Slot.Active {
			return fmt.Errorf("the status is %s", body)
		}
		return nil
	})
	for _, secret := range []string{apiKey, "12.50"} {
		if strings.Contains(body, secret) {
			t.Errorf("the status has %q: %s", secret, body)
		}
	}
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(fmt.Errorf("%d: %w", response.StatusCode, err))
	}
	return string(body)
}
