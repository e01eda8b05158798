package outbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// The limits of a message. The table has the same ones as constraints.
const (
	MaxKeyLength         = 128     // characters
	MaxQueueLength       = 63      // characters
	MaxOrderingKeyLength = 255     // characters
	MaxPayloadBytes      = 256_000 // bytes, as Postgres prints the JSON
	MaxHeadersBytes      = 16_384  // bytes of all headers, as Postgres prints the JSON
	MaxDelay             = 604_800 * time.Second
	MaxPriority          = 9
)

// LimitError says that one field of a message breaks a limit. Nothing was sent
// to the server and the transaction is as it was.
type LimitError struct {
	// Field is the column: key, queue, ordering_key, payload, headers,
	// delay_seconds, priority or deliver_at.
	Field string
	// Limit is what the field must be.
	Limit string
	// Got is what it is instead. It never holds text of the payload or of a
	// header's value.
	Got string
}

// Error implements error.
func (e *LimitError) Error() string {
	return fmt.Sprintf("%s must be %s, got %s", e.Field, e.Limit, e.Got)
}

func checkKey(key string) error {
	limit := &LimitError{"key", fmt.Sprintf("1 to %d printable ASCII characters without spaces", MaxKeyLength), ""}
	printable := func(r rune) bool { return r > ' ' && r <= '~' }
	return limit.text(key, MaxKeyLength, printable)
}

func checkQueue(queue string) error {
	limit := &LimitError{
		"queue", fmt.Sprintf("1 to %d characters of a-z, 0-9, _ and -, the first one a letter or a digit", MaxQueueLength), "",
	}
	if strings.HasPrefix(queue, "_") || strings.HasPrefix(queue, "-") {
		limit.Got = quote(queue)
		return limit
	}
	return limit.text(queue, MaxQueueLength, func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '-'
	})
}

func checkOrderingKey(key string) error {
	if key == "" {
		return nil
	}
	limit := &LimitError{"ordering_key", fmt.Sprintf("at most %d characters of UTF-8 without NUL", MaxOrderingKeyLength), ""}
	if !utf8.ValidString(key) {
		limit.Got = quote(key)
		return limit
	}
	return limit.text(key, MaxOrderingKeyLength, func(r rune) bool { return r != 0 })
}

func checkHeaders(headers map[string]string) error {
	if len(headers) == 0 {
		return nil
	}
	for name, value := range headers {
		limit := &LimitError{"headers", "text of UTF-8 without NUL", ""}
		if !storable(name) {
			limit.Got = "the name " + quote(name)
			return limit
		}
		if !storable(value) {
			limit.Got = "something else in " + quote(name)
			return limit
		}
	}
	text, err := json.Marshal(headers)
	if err != nil {
		return fmt.Errorf("marshal headers: %w", err)
	}
	size, err := textSize(text)
	if err == nil && size > MaxHeadersBytes {
		err = &LimitError{"headers", fmt.Sprintf("at most %d bytes as Postgres prints them", MaxHeadersBytes), fmt.Sprintf("%d", size)}
	}
	return err
}

func checkDelay(delay time.Duration) error {
	if delay >= 0 && delay <= MaxDelay && delay%time.Second == 0 {
		return nil
	}
	return &LimitError{"delay_seconds", fmt.Sprintf("0 to %d, in whole seconds", MaxDelay/time.Second), delay.String()}
}

func checkPriority(priority *int) error {
	if priority == nil || *priority >= 0 && *priority <= MaxPriority {
		return nil
	}
	return &LimitError{"priority", fmt.Sprintf("0 to %d", MaxPriority), fmt.Sprint(*priority)}
}

// checkDeliverAt keeps to the years that both RFC 3339 and timestamptz can
// write: a year with five digits would come back as another time.
func checkDeliverAt(at time.Time) error {
	if year := at.UTC().Year(); year >= 1 && year <= 9999 {
		return nil
	}
	return &LimitError{"deliver_at", "in the years 1 to 9999", at.UTC().Format(time.RFC3339)}
}

// text checks a short text: its length and each of its characters.
func (e *LimitError) text(s string, longest int, allowed func(rune) bool) error {
	n := utf8.RuneCountInString(s)
	switch {
	case n == 0:
		e.Got = "none"
	case n > longest:
		e.Got = fmt.Sprintf("%d characters", n)
	case strings.ContainsFunc(s, func(r rune) bool { return !allowed(r) }):
		e.Got = quote(s)
	default:
		return nil
	}
	return e
}

// storable reports whether a text column or jsonb can hold s.
func storable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsRune(s, 0)
}

// quote shows the beginning of a short text in ASCII.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return fmt.Sprintf("%+q...", s[:most])
	}
	return fmt.Sprintf("%+q", s)
}
