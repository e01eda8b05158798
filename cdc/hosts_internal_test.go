package cdc

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

func parse(t *testing.T, url string) *pgx.ConnConfig {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestApart_OneConfigurationForEachHost(t *testing.T) {
	t.Parallel()
	for url, want := range map[string][][2]any{
		"postgres://u@a:1/d?sslmode=disable":         {{"a", 1}},
		"postgres://u@a:1,b:2/d?sslmode=disable":     {{"a", 1}, {"b", 1}},
		"postgres://u@a:1,b:2,a:3/d?sslmode=disable": {{"a", 1}, {"b", 1}, {"a", 1}},
		"postgres://u@a:1,b:2/d?sslmode=prefer":      {{"a", 2}, {"b", 2}}, // with TLS and without
		"postgres://u@a:1,a:1/d?sslmode=disable":     {{"a", 2}},
	} {
		var got [][2]any
		for _, one := range apart(parse(t, url)) {
			got = append(got, [2]any{one.Host, 1 + len(one.Fallbacks)})
			for _, way := range one.Fallbacks {
				if way.Host != one.Host || way.Port != one.Port {
					t.Errorf("%s: a way to %s:%d leads to %s:%d", url, one.Host, one.Port, way.Host, way.Port)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", url, diff)
		}
	}
}

func TestHosts_OnlyOneOfSeveralIsJudged(t *testing.T) {
	t.Parallel()
	if c := new(hosts).chooseIn(parse(t, "postgres://u@a:1/d?sslmode=disable"), time.Second); c.ValidateConnect != nil {
		t.Error("a connection to the only host is judged")
	}
	const url = "postgres://u@a:1,b:2/d?sslmode=disable"
	for given, want := range map[string]time.Duration{url: 2 * time.Second, url + "&connect_timeout=1": time.Second} {
		if c := new(hosts).chooseIn(parse(t, given), 6*time.Second); c.ValidateConnect == nil || c.ConnectTimeout != want {
			t.Errorf("%s: each host has %v, want %v", given, c.ConnectTimeout, want)
		}
	}
}

func TestHosts_RefusesWhatAPromotionLeftBehind(t *testing.T) {
	t.Parallel()
	conn, err := pgconn.Connect(t.Context(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	here, err := historyOf(t.Context(), conn)
	if err != nil || here.timeline != 1 {
		t.Fatalf("history is %v, %v, want timeline 1", here, err)
	}
	h := new(hosts)
	expect := func(when string, want error) {
		t.Helper()
		if err := h.validate(t.Context(), conn); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", when, err, want)
		}
	}
	expect("nothing is known", nil)
	h.settle(here.system, 1)
	expect("the same timeline", nil)
	h.settle(here.system, 2)
	expect("a later one was seen", errStale)
	h.beLenient(true)
	expect("an old one will do", nil)
	h.beLenient(false)
	h.settle("4711", 2)
	expect("another cluster, of which others decide", nil)
}
