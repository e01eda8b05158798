package infraiadmin

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
)

// Settings are what a queue is created with. What is nil or empty is left to the
// queue.
type Settings struct {
	// Type is standard or fifo.
	Type string `json:"type,omitempty"`
	// DeadLetterQueue takes the messages that were given back more than
	// MaxRetries times. It has to exist before.
	DeadLetterQueue string `json:"dead_letter_queue,omitempty"`
	MaxRetries      *int   `json:"max_retries,omitempty"`
	// RetentionDays is how long messages are kept, at most 30.
	RetentionDays *int `json:"message_retention_days,omitempty"`
	// VisibilityTimeout is the lease of a consumer that names none, in seconds.
	VisibilityTimeout *int `json:"visibility_timeout_default,omitempty"`
	EnablePriority    bool `json:"enable_priority,omitempty"`
}

// maxRetentionDays is documented.
const maxRetentionDays = 30

var queueName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// CheckQueue says what is wrong with the name of a queue.
func CheckQueue(name string) error {
	if !queueName.MatchString(name) {
		return fmt.Errorf("%q is not the name of a queue: want up to 63 of a-z, 0-9, _ and -", name)
	}
	return nil
}

// Validate reports everything that is wrong with a queue of this name.
func (s Settings) Validate(queue string) error {
	errs := []error{CheckQueue(queue)}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(s.Type == "standard" || s.Type == "fifo", "the type is %q, want standard or fifo", s.Type)
	check(s.DeadLetterQueue != queue, "a queue cannot be its own dead letter queue")
	if s.DeadLetterQueue != "" {
		errs = append(errs, CheckQueue(s.DeadLetterQueue))
	}
	check(s.MaxRetries == nil || *s.MaxRetries >= 0, "the retries are fewer than 0")
	check(s.RetentionDays == nil || *s.RetentionDays >= 1 && *s.RetentionDays <= maxRetentionDays,
		"the retention is not 1 to %d days", maxRetentionDays)
	check(s.VisibilityTimeout == nil || *s.VisibilityTimeout >= 1, "the visibility timeout is less than a second")
	return errors.Join(errs...)
}

// ofDeadLetters are the settings of the dead letter queue: the same type, so
// that dead letters keep the order in which they came, and the same retention.
func (s Settings) ofDeadLetters() Settings {
	return Settings{Type: s.Type, RetentionDays: s.RetentionDays}
}

// createBody is the request that creates a queue: names sorted, no spaces, one
// newline, as the queue wants its JSON.
func createBody(queue string, s Settings, key string) []byte {
	body := s.members()
	body["name"], body["idempotency_key"] = queue, key
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // strings, numbers and booleans
	}
	return append(text, '\n')
}

// members are the settings that were asked for, by the queue's names.
func (s Settings) members() map[string]any {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings, numbers and booleans
	}
	var members map[string]any
	if err := json.Unmarshal(text, &members); err != nil {
		panic(err)
	}
	return members
}
