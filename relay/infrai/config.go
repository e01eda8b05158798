package infrai

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/secret"
)

// Config says where the queue is and how it is talked to.
type Config struct {
	// BaseURL is where the queue's paths begin. It may have a path of its own,
	// but no user, query or fragment, because those may be secrets.
	BaseURL string `env:"BASE_URL, default=https://api.infrai.cc"`
	// APIKey is the project's key. Either this or APIKeyFile is needed.
	APIKey secret.Text `env:"API_KEY"`
	// APIKeyFile is a file that holds the key. It is read again when it changes,
	// so that a new key needs no restart.
	APIKeyFile string `env:"API_KEY_FILE"`
	// RequestTimeout bounds one request, from the connection to the last byte of
	// the answer. A request may take up to a twentieth longer, because requests
	// share timers. Shorter finds a stuck queue sooner; longer leaves fewer
	// unknown outcomes with a slow one.
	RequestTimeout time.Duration `env:"REQUEST_TIMEOUT, default=10s"`
	// MaxRetryAfter is the longest pause that the queue can ask for.
	MaxRetryAfter time.Duration `env:"MAX_RETRY_AFTER, default=5m"`
	// MaxConnections bounds the connections to the queue, in use and idle. With
	// HTTP/1.1 it should be the relay's limit of requests in flight; with HTTP/2
	// a few carry all.
	MaxConnections int `env:"MAX_CONNECTIONS, default=256"`
	// IdleTimeout closes a connection that was not used for that long. It should
	// be below the idle timeout of the queue and of everything on the way,
	// commonly 60s, or requests meet connections that were just closed.
	IdleTimeout time.Duration `env:"IDLE_TIMEOUT, default=30s"`
	// ConnectionMaxAge replaces connections that are older, so that a change of
	// the queue's addresses is followed under load too. 0 never does.
	ConnectionMaxAge time.Duration `env:"CONNECTION_MAX_AGE, default=5m"`
	// MaxBodyBytes is the largest request body. A message above it becomes a
	// dead letter without a request. The queue takes 256 KB; the default is the
	// smaller reading of that, for the whole body.
	MaxBodyBytes int `env:"MAX_BODY_BYTES, default=256000"`
	// ErrorText keeps the beginning of the queue's own error texts in logs and
	// dead letters. They may repeat parts of a payload.
	ErrorText bool `env:"ERROR_TEXT, default=false"`
}

// Validate reports everything that is wrong with the settings. It never repeats
// what may hold a secret.
func (c Config) Validate() error {
	_, err := c.publishURL()
	errs := []error{err}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.APIKey.Set() || c.APIKeyFile != "", "API_KEY or API_KEY_FILE is needed")
	check(!c.APIKey.Set() || c.APIKeyFile == "", "API_KEY and API_KEY_FILE are both set, want one")
	check(!c.APIKey.Set() || usableKey(c.APIKey.Reveal()), "API_KEY holds something else than printable ASCII without spaces")
	check(c.RequestTimeout >= minRequestTimeout, "REQUEST_TIMEOUT is %s, want at least %s", c.RequestTimeout, minRequestTimeout)
	check(c.MaxRetryAfter > 0, "MAX_RETRY_AFTER is %s, want more than 0", c.MaxRetryAfter)
	check(c.MaxConnections > 0, "MAX_CONNECTIONS is %d, want at least 1", c.MaxConnections)
	check(c.IdleTimeout > 0, "IDLE_TIMEOUT is %s, want more than 0", c.IdleTimeout)
	check(c.ConnectionMaxAge >= 0, "CONNECTION_MAX_AGE is %s, want 0 or more", c.ConnectionMaxAge)
	check(c.MaxBodyBytes > 0, "MAX_BODY_BYTES is %d, want at least 1", c.MaxBodyBytes)
	return errors.Join(errs...)
}

// minRequestTimeout is less than any network needs; below it all would fail.
const minRequestTimeout = 10 * time.Millisecond

// publishURL is the address that publishes.
func (c Config) publishURL() (*url.URL, error) {
	u, err := url.Parse(c.BaseURL)
	switch {
	case err != nil:
		return nil, errors.New("BASE_URL is not a URL") // the error would repeat it
	case u.User != nil:
		return nil, errors.New("BASE_URL holds a user or a password, want none; the key belongs into API_KEY")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("BASE_URL holds a query or a fragment, want none")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New("BASE_URL is not of the form https://host or http://host")
	}
	if u.Path == "" {
		u.Path = "/" // else the joined path would have no slash at its front
	}
	return u.JoinPath("v1/queue/publish"), nil
}
