package infrai

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/secret"
)

// apiKey is the key of now, ready for the Authorization header. One from a file
// follows the file.
type apiKey struct {
	file string // empty if the key is fixed
	log  *zap.Logger

	header    atomic.Pointer[[]string]
	state     atomic.Pointer[KeyState]
	nextCheck atomic.Int64 // Unix nanoseconds

	mu      sync.Mutex // held while the file is looked at
	seen    fileState
	trouble string // the last complaint that was logged
}

// KeyState is where the key comes from that requests carry. It does not tell the key.
type KeyState struct {
	// File is the file that is read again when it changes; empty for a key that the
	// environment gave.
	File string
	// Since is since when it has been this key: when it was read first.
	Since time.Time
	// Trouble is why the file cannot be used now, while the last key stays.
	Trouble string
}

// note keeps what is known of the key. The caller has mu, or k alone.
func (k *apiKey) note(changed bool) {
	next := KeyState{File: k.file, Since: time.Now(), Trouble: k.trouble}
	if before := k.state.Load(); before != nil && !changed {
		next.Since = before.Since
	}
	k.state.Store(&next)
}

// fileState tells whether a file has changed since. Mounted secrets are swapped
// by renaming, which may keep size or time, so both count.
type fileState struct {
	modified time.Time
	size     int64
}

// keyCheckInterval is how often the file is looked at.
const keyCheckInterval = time.Second

var errKeyContent = errors.New("it holds no key: printable ASCII without spaces on one line")

func newAPIKey(fixed secret.Text, file string, log *zap.Logger) (*apiKey, error) {
	k := &apiKey{file: file, log: log}
	if file == "" {
		k.note(k.set(fixed.Reveal()))
		return k, nil
	}
	key, err := k.readFile()
	if err != nil {
		return nil, fmt.Errorf("read the API key from a file: %w", err)
	}
	k.note(k.set(key))
	return k, nil
}

// current returns the Authorization header's values, after a look at the file if
// one is due. The slice is shared: nobody may change it.
func (k *apiKey) current(now time.Time) []string {
	if due := k.nextCheck.Load(); k.file != "" && now.UnixNano() >= due &&
		k.nextCheck.CompareAndSwap(due, now.Add(keyCheckInterval).UnixNano()) {
		k.reload()
	}
	return *k.header.Load()
}

// refused reports whether there is another key than the one that the queue has
// just refused, by looking at the file at once.
func (k *apiKey) refused(used []string) bool {
	if k.file == "" {
		return false
	}
	k.reload()
	return (*k.header.Load())[0] != used[0]
}

// reload takes over what the file holds now. If that is no key, the last one
// stays, because a file that is being replaced is empty for a moment.
func (k *apiKey) reload() {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.seen
	key, err := k.readFile()
	switch {
	case err != nil:
		if k.trouble != err.Error() {
			k.trouble = err.Error()
			k.note(false)
			k.log.Warn("API key file not usable, the last key stays", zap.String("file", k.file), zap.Error(err))
		}
	case k.seen != before:
		k.trouble = ""
		changed := k.set(key)
		k.note(changed)
		if changed {
			k.log.Info("API key read again", zap.String("file", k.file))
		}
	}
}

// readFile reads the key if the file has changed since it was last read well;
// else the key is empty.
func (k *apiKey) readFile() (key string, err error) {
	info, err := os.Stat(k.file)
	if err != nil {
		return "", err
	}
	state := fileState{info.ModTime(), info.Size()}
	if state == k.seen {
		return "", nil
	}
	content, err := os.ReadFile(k.file)
	if err != nil {
		return "", err
	}
	key = strings.TrimSpace(string(content))
	if !usableKey(key) {
		return "", errKeyContent
	}
	k.seen = state
	return key, nil
}

// set makes key the current one and reports whether it is another than before.
func (k *apiKey) set(key string) bool {
	header := []string{"Bearer " + key}
	before := k.header.Swap(&header)
	return before == nil || (*before)[0] != header[0]
}

func usableKey(key string) bool { return key != "" && graphic(key) }
