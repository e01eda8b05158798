package cdc_test

import (
	"strings"
	"testing"

	"github.com/sethvargo/go-envconfig"

	"github.com/outbox-relay/outbox-relay/cdc"
)

func defaults(t *testing.T, env map[string]string) cdc.Config {
	t.Helper()
	config := cdc.Config{Schema: "outbox"}
	err := envconfig.ProcessWith(t.Context(), &envconfig.Config{Target: &config, Lookuper: envconfig.MapLookuper(env)})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestConfig_DefaultsAreValid(t *testing.T) {
	t.Parallel()
	config := defaults(t, nil)
	if err := config.Validate(); err != nil {
		t.Error(err)
	}
}

// SCH-08: a slot name that Postgres would refuse is refused before connecting.
func TestConfig_Validate_ReportsEverything(t *testing.T) {
	t.Parallel()
	config := defaults(t, map[string]string{
		"SLOT": "My-Slot", "PUBLICATION": strings.Repeat("p", 64), "SLOT_LOST": "ignore",
		"STATUS_INTERVAL": "10s", "SILENCE_TIMEOUT": "15s", "WAL_SENDER_TIMEOUT": "15s", "RECONNECT_MIN": "1m", "LEASE_INTERVAL": "-1s",
	})
	config.Schema = "zero\x00byte"
	err := config.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"SCHEMA", `SLOT is "My-Slot"`, "a-z 0-9 _", "PUBLICATION", `SLOT_LOST is "ignore"`,
		"SILENCE_TIMEOUT is 15s: want at least twice STATUS_INTERVAL (20s)", "WAL_SENDER_TIMEOUT", "RECONNECT_MAX is 30s", "LEASE_INTERVAL is -1s",
	} {
		wantText(t, err.Error(), want)
	}
	for _, name := range []string{"", "a b", "a'b", "a;b", strings.Repeat("x", 64)} {
		c := defaults(t, nil)
		c.Slot = name
		if c.Validate() == nil {
			t.Errorf("slot name %q is accepted", name)
		}
	}
	for _, name := range []string{"MyPub", "my-pub", `it's "x"`, "select"} {
		c := defaults(t, map[string]string{"PUBLICATION": name})
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
}
