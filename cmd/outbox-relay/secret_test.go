package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// secretPieces are parts of the secrets and payloads below. A parser may cut a
// secret anywhere, so parts count.
var secretPieces = []string{"S3cr", "%zz", "zz:@", "t0ken", "ifr_", "private"}

func expectNoSecret(t *testing.T, text string) {
	t.Helper()
	for _, piece := range secretPieces {
		if strings.Contains(text, piece) {
			t.Errorf("%q is in the output:\n%s", piece, text)
		}
	}
}

// SEC-01: secrets in settings that cannot be used, or lead nowhere.
func TestSecrets_UselessSettings(t *testing.T) {
	t.Parallel()
	const password = "S3cr%zz:@/pw"
	for name, change := range map[string][]string{
		"URL, not escaped":      {"DATABASE_URL", "postgres://relay:" + password + "@127.0.0.1:1/app"},
		"URL, wrong port":       {"DATABASE_URL", "postgres://relay:S3cret@127.0.0.1:99999/app"},
		"URL, no server":        {"DATABASE_URL", "postgres://relay:S3cret@127.0.0.1:1/app"},
		"URL, unknown option":   {"DATABASE_URL", "postgres://relay:S3cret@127.0.0.1:1/app?sslmode=S3cret"},
		"URL, unknown host":     {"DATABASE_URL", "postgres://relay:S3cret@db.invalid/app?sslmode=verify-full"},
		"URL, unencrypted":      {"DATABASE_URL", "postgres://relay:S3cret@db.invalid/app"},
		"pairs, not quoted":     {"DATABASE_URL", "host=127.0.0.1 port=1 password=S3cr zz=:@ user=relay"},
		"pairs, open quote":     {"DATABASE_URL", "host=127.0.0.1 password='S3cret user=relay"},
		"a password alone":      {"DATABASE_URL", "S3cret"},
		"replication":           {"RELAY_REPLICATION_URL", "postgres://relay:" + password + "@127.0.0.1/app"},
		"queue, user and token": {"INFRAI_BASE_URL", "https://relay:S3cret@127.0.0.1:1/?token=t0ken"},
		"queue, not a URL":      {"INFRAI_BASE_URL", "https://relay:S3cret@127.0.0.1 :x/"},
		"key with spaces":       {"INFRAI_API_KEY", "ifr_ two words"},
		"a secret elsewhere":    {"RELAY_DATABASE_PASSWORD", "S3cret"},
	} {
		environment := settings{
			"DATABASE_URL":   "postgres://relay:S3cret@127.0.0.1:1/app",
			"INFRAI_API_KEY": "ifr_S3cret", "INFRAI_BASE_URL": "http://127.0.0.1:1", "RELAY_LOG_LEVEL": "debug",
		}.with(change...)
		for _, args := range [][]string{
			{"doctor"},
			{"doctor", "--json"},
			{"status"},
			{"migrate", "up"},
			{"grants", "print"},
			{"--help"},
			{"infrai", "stats", "orders"},
			{"infrai", "discover"},
			{"queues", "provision", "orders", "--yes"},
		} {
			t.Run(fmt.Sprint(name, args), func(t *testing.T) {
				t.Parallel()
				r := execute(t, environment, args...)
				expectNoSecret(t, r.out+r.err)
			})
		}
		t.Run(fmt.Sprint(name, "[run]"), func(t *testing.T) {
			t.Parallel()
			d := start(t, environment, "run")
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			// It ends, or it waits for the database.
			_, _, _ = d.Await(ctx, 0, func(l relaybin.Line) bool { return l.Message() == "database does not answer, waiting for it" })
			d.end()
			expectNoSecret(t, d.Text())
		})
	}
}

// SEC-01, SEC-05: neither secrets nor payloads are in the most talkative log of
// a relay at work, nor in what the other verbs say about it.
func TestSecrets_AtWork(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	withPassword, err := url.Parse(r.url)
	if err != nil {
		t.Fatal(err)
	}
	withPassword.User = url.UserPassword("postgres", "S3cr%zz:@/pw")
	environment := r.with("DATABASE_URL", withPassword.String(), "RELAY_LOG_LEVEL", "debug")
	for _, f := range []emulator.Fault{
		{Key: "refused", Status: 422, Code: "INVALID_ARGUMENT", Message: "you sent private things"},
		{Key: "later", Status: 502, Body: emulator.BodyHTML, Count: 1},
	} {
		if _, err := r.queue.AddFault(f); err != nil {
			t.Fatal(err)
		}
	}
	d := start(t, environment, "run")
	for _, key := range []string{"refused", "later", "good"} {
		sql(t, r.url, `insert into outbox.messages (key, queue, payload) values ('`+key+`', 'orders', '{"name": "private"}')`)
	}
	d.AwaitMessage(t, "dead letter")
	r.awaitDispatched(t, 2)
	for _, args := range [][]string{{"doctor"}, {"doctor", "--json"}, {"status"}, {"status", "--json"}, {"migrate", "status"}} {
		got := expectCode(t, environment, exitStopped, args)
		expectNoSecret(t, got.out+got.err)
	}
	d.end()
	expectNoSecret(t, d.Text())
	if got := query[string](t, r.url, "select last_error from outbox.dead_letters"); strings.Contains(got, "private") {
		t.Errorf("the payload is in dead_letters.last_error: %s", got)
	}
}

// SEC-01: an error about a connection still says which one.
func TestSecrets_ErrorsAreUseful(t *testing.T) {
	t.Parallel()
	environment := settings{"DATABASE_URL": "postgres://relay:S3cret@127.0.0.1:1/app"}
	r := expectCode(t, environment, exitUnexpected, []string{"status"}, "127.0.0.1:1", "relay", "app", "hint: ")
	if got := strings.Count(r.err, "\n"); got != 2 {
		t.Errorf("the error takes %d lines, want it on one and the hint on another:\n%s", got, r.err)
	}
}
