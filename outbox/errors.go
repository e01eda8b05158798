package outbox

import (
	"errors"
	"fmt"
	"strings"
)

// ErrDuplicateKey says that the outbox already has a message with this key: of
// an earlier transaction, of this one, or earlier in the same call. Nothing was
// written for it; the other messages of the call were written, and the
// transaction goes on. Whether that is a mistake or the second attempt of the
// same thing, only the caller knows.
var ErrDuplicateKey = errors.New("key is in the outbox already")

func duplicateKeys(keys []string) error {
	const most = 10
	more := ""
	if len(keys) > most {
		more = fmt.Sprintf(" and %d more", len(keys)-most)
		keys = keys[:most]
	}
	return fmt.Errorf("%w: %s%s", ErrDuplicateKey, strings.Join(keys, ", "), more)
}
