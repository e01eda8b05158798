package admin_test

import (
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/secret"
	"github.com/outbox-relay/outbox-relay/relay/admin"
)

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	cfg := admin.Config{Listen: "9464", Hosts: []string{"https://a", "relay.example.com", "b:9464"}, MaxAge: 1, StuckAfter: 1}
	want := `ADMIN_LISTEN is "9464": want host:port such as 127.0.0.1:9464, or off
ADMIN_HOSTS has "https://a": want host names such as relay.example.com, without scheme and port
ADMIN_HOSTS has "b:9464": want host names such as relay.example.com, without scheme and port
READY_MAX_AGE is 1ns: want at least 1s
STUCK_AFTER is 1ns: want at least 30s`
	if err := cfg.Validate(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	for _, listen := range []string{"off", ":9464", "127.0.0.1:0", "[::1]:9464", "localhost:9464"} {
		cfg := defaults()
		cfg.Listen = listen
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s: %v", listen, err)
		}
	}
	for _, listen := range []string{"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", ":-1"} {
		cfg := defaults()
		cfg.Listen = listen
		if err := cfg.Validate(); err == nil {
			t.Errorf("%q is taken for an address", listen)
		}
	}
}

// What is wrong with a token is said without it.
func TestConfig_Token(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*admin.Config){
		"ADMIN_TOKEN is shorter than 16 characters":               func(c *admin.Config) { c.Token = secret.New("s3cret") },
		"ADMIN_TOKEN and ADMIN_TOKEN_FILE are both set, want one": func(c *admin.Config) { c.Token, c.TokenFile = secret.New("s3cret-s3cret-s3cret"), "file" },
	} {
		cfg := defaults()
		change(cfg)
		if err := cfg.Validate(); err == nil || err.Error() != want || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
