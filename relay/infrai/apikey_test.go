package infrai_test

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/secret"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
)

// guard is a queue that knows one key at a time.
type guard struct {
	mu   sync.Mutex
	key  string
	seen []string
}

func (g *guard) change(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.key = key
}

func (g *guard) requests() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.seen)
}

// ServeHTTP implements http.Handler.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	g.seen = append(g.seen, key)
	if key != g.key {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(refused("UNAUTHORIZED")))
		return
	}
	_, _ = w.Write([]byte(accepted))
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// HTTP-10: a key that is replaced in its file is used without a restart, and
// the request that found the old one refused does not even fail.
func TestPublish_FollowsTheKeyFile(t *testing.T) {
	t.Parallel()
	queue := &guard{key: "first"}
	cfg := settings(answering(t, queue.ServeHTTP))
	cfg.APIKey, cfg.APIKeyFile = secret.Text{}, filepath.Join(t.TempDir(), "key")
	write(t, cfg.APIKeyFile, "first\n")
	p, logs := observed(t, cfg)
	publish := func() error {
		_, err := p.Publish(t.Context(), message("k"))
		return err
	}
	if err := publish(); err != nil {
		t.Fatal(err)
	}
	first := p.Key()
	if first.File != cfg.APIKeyFile || first.Since.IsZero() || first.Trouble != "" {
		t.Errorf("the key is %+v", first)
	}

	queue.change("the second")
	before := queue.requests()
	if got := refusal(t, publish()); got.Class != relay.EndpointClosed || got.Status != http.StatusUnauthorized {
		t.Errorf("class %s, status %d, want endpoint closed by 401", got.Class, got.Status)
	}
	if n := queue.requests() - before; n != 1 {
		t.Errorf("%d requests with a key that is refused, want 1", n)
	}

	queue.change("second-key")
	write(t, cfg.APIKeyFile, "  second-key \n")
	if err := publish(); err != nil {
		t.Errorf("after the rotation: %v", err)
	}
	second := p.Key()
	if !second.Since.After(first.Since) || second.Trouble != "" {
		t.Errorf("after the rotation the key is %+v, before it was %+v", second, first)
	}

	write(t, cfg.APIKeyFile, "")
	queue.change("third")
	if got := refusal(t, publish()); got.Class != relay.EndpointClosed {
		t.Errorf("with an empty file: class %s, want endpoint closed by the last key", got.Class)
	}
	if got := p.Key(); got.Since != second.Since || !strings.Contains(got.Trouble, "it holds no key") {
		t.Errorf("with an empty file the key is %+v", got)
	}
	if err := os.Remove(cfg.APIKeyFile); err != nil {
		t.Fatal(err)
	}
	_ = publish()
	_ = publish()
	write(t, cfg.APIKeyFile, "third")
	if err := publish(); err != nil {
		t.Errorf("after the file came back: %v", err)
	}
	if got := p.Key(); !got.Since.After(second.Since) || got.Trouble != "" {
		t.Errorf("after the file came back the key is %+v", got)
	}

	text := logs()
	if n := strings.Count(text, "API key read again"); n != 2 {
		t.Errorf("%d lines about a new key, want 2:\n%s", n, text)
	}
	if n := strings.Count(text, "not usable"); n != 2 {
		t.Errorf("%d lines about an unusable file, want one for each trouble:\n%s", n, text)
	}
	for _, key := range []string{"first", "second-key", "third"} {
		if strings.Contains(text, key) {
			t.Errorf("the log tells the key %s:\n%s", key, text)
		}
	}
}

func TestNew_NeedsAReadableKeyFile(t *testing.T) {
	t.Parallel()
	cfg := settings("https://host.invalid")
	cfg.APIKey, cfg.APIKeyFile = secret.Text{}, filepath.Join(t.TempDir(), "key")
	if _, err := infrai.New(cfg, zap.NewNop()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v, want that it does not exist", err)
	}
	write(t, cfg.APIKeyFile, "two words S3cr")
	if _, err := infrai.New(cfg, zap.NewNop()); err == nil || strings.Contains(err.Error(), "S3cr") {
		t.Errorf("with nonsense: %v, want an error that does not tell it", err)
	}
}
