package emulator

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Settings hold one switch for every question about the queue that its
// documentation leaves open, and a few limits. An empty switch means its
// default, which is the first value in its comment. [Switches] describes them
// for people; docs/emulator.md says what is behind each.
type Settings struct {
	// ConsumeKey is the name of the list in a consume answer: items, messages,
	// or array for a bare array.
	ConsumeKey string `env:"CONSUME_KEY"`
	// ConsumeExtras adds receive_count, published_at and visible_until to a
	// consumed message: on, off.
	ConsumeExtras string `env:"CONSUME_EXTRAS"`
	// PlatformIdempotency remembers keys for 24 hours: on, off.
	PlatformIdempotency string `env:"PLATFORM_IDEMPOTENCY"`
	// KeyConflict answers a known key with another body: 409, 422, or replay
	// for the first answer.
	KeyConflict string `env:"KEY_CONFLICT"`
	// KeyInFlight answers a key whose first request is still being handled:
	// handle (as if it had come later), 409.
	KeyInFlight string `env:"KEY_IN_FLIGHT"`
	// KeySource says where a key is looked for: both, header, body.
	KeySource string `env:"KEY_SOURCE"`
	// DerivedKey gives a publish without a key one from its body, so that equal
	// bodies are one message: off, on.
	DerivedKey string `env:"DERIVED_KEY"`
	// RememberRefusals keeps a 400, 404, 409, 413 or 422 under its key too: off, on.
	RememberRefusals string `env:"REMEMBER_REFUSALS"`
	// Recreate answers a create of an existing queue with the same settings:
	// ok, 409.
	Recreate string `env:"RECREATE"`
	// AutoCreate makes a queue at its first publish: off, on.
	AutoCreate string `env:"AUTO_CREATE"`
	// Payload says what a payload may be: object, any.
	Payload string `env:"PAYLOAD"`
	// UnknownFields of a body are ignored with a log line, or refused: ignore,
	// reject.
	UnknownFields string `env:"UNKNOWN_FIELDS"`
	// SizeBasis is what the size limit counts: payload, body.
	SizeBasis string `env:"SIZE_BASIS"`
	// KB is the number of bytes in a kilobyte of the limit: 1024, 1000.
	KB string `env:"KB"`
	// OversizeStatus answers a message above the limit: 413, 400.
	OversizeStatus string `env:"OVERSIZE_STATUS"`
	// FIFOScope is what a FIFO queue orders: queue, or group by the invented
	// field message_group_id.
	FIFOScope string `env:"FIFO_SCOPE"`
	// FIFODelay says what a delayed message of a FIFO queue does to later
	// ones: pass, block.
	FIFODelay string `env:"FIFO_DELAY"`
	// LeaseExpiryCounts counts an ended lease like a nack: on, off.
	LeaseExpiryCounts string `env:"LEASE_EXPIRY_COUNTS"`
	// LateAck answers an ack or nack after the lease has ended: ok, 404.
	LateAck string `env:"LATE_ACK"`
	// Batch offers publish_batch: on, off.
	Batch string `env:"BATCH"`
	// RedrivePath says what the path of dlq list and redrive names: source, dlq.
	RedrivePath string `env:"REDRIVE_PATH"`
	// RedriveID says which message id a redriven message has: keep, new.
	RedriveID string `env:"REDRIVE_ID"`
	// RedriveResets starts the failures of a redriven message at 0: on, off.
	RedriveResets string `env:"REDRIVE_RESETS"`
	// DiscoveryParams says how discovery describes parameters: schema (a whole
	// JSON Schema), fields (a bare map of fields).
	DiscoveryParams string `env:"DISCOVERY_PARAMS"`
	// SuccessStatus is the status of a successful call: 200, 201, 202.
	SuccessStatus string `env:"SUCCESS_STATUS"`
	// RequestIDHeader sends X-Infrai-Request-Id with every answer: on, off.
	RequestIDHeader string `env:"REQUEST_ID_HEADER"`
	// Journal says what is kept of a request: full (with body and headers), keys
	// (neither), off.
	Journal string `env:"JOURNAL"`

	// RateLimit is the number of queue calls a second beyond which the answer
	// is 429 with Retry-After: 1; 0 is no limit.
	RateLimit int `env:"RATE_LIMIT"`
	// MaxRetries is how many failures a message of a queue without
	// max_retries may have before it becomes a dead letter; 0 means 5.
	MaxRetries int `env:"MAX_RETRIES"`
	// RetentionDays is how long a queue without message_retention_days keeps
	// messages; 0 means 14.
	RetentionDays int `env:"RETENTION_DAYS"`
	// VisibilityTimeout is the lease, in seconds, of a queue without
	// visibility_timeout_default; 0 means 30.
	VisibilityTimeout int `env:"VISIBILITY_TIMEOUT"`
}

// The values that several switches share.
const (
	on  = "on"
	off = "off"
)

// Switch describes one setting.
type Switch struct {
	// Name is the setting's name in JSON and, in upper case, in the environment.
	Name string
	// Values are what it may be, the default first; nil if it is a number.
	Values []string
	// Default is the value of an empty setting.
	Default string
	// Max is the highest number; 0 if Values are given.
	Max int

	text   func(*Settings) *string
	number func(*Settings) *int
}

var switches = []Switch{
	choice("consume_key", func(s *Settings) *string { return &s.ConsumeKey }, "items", "messages", "array"),
	choice("consume_extras", func(s *Settings) *string { return &s.ConsumeExtras }, on, off),
	choice("platform_idempotency", func(s *Settings) *string { return &s.PlatformIdempotency }, on, off),
	choice("key_conflict", func(s *Settings) *string { return &s.KeyConflict }, "409", "422", "replay"),
	choice("key_in_flight", func(s *Settings) *string { return &s.KeyInFlight }, "handle", "409"),
	choice("key_source", func(s *Settings) *string { return &s.KeySource }, "both", "header", "body"),
	choice("derived_key", func(s *Settings) *string { return &s.DerivedKey }, off, on),
	choice("remember_refusals", func(s *Settings) *string { return &s.RememberRefusals }, off, on),
	choice("recreate", func(s *Settings) *string { return &s.Recreate }, "ok", "409"),
	choice("auto_create", func(s *Settings) *string { return &s.AutoCreate }, off, on),
	choice("payload", func(s *Settings) *string { return &s.Payload }, "object", "any"),
	choice("unknown_fields", func(s *Settings) *string { return &s.UnknownFields }, "ignore", "reject"),
	choice("size_basis", func(s *Settings) *string { return &s.SizeBasis }, "payload", "body"),
	choice("kb", func(s *Settings) *string { return &s.KB }, "1024", "1000"),
	choice("oversize_status", func(s *Settings) *string { return &s.OversizeStatus }, "413", "400"),
	choice("fifo_scope", func(s *Settings) *string { return &s.FIFOScope }, "queue", "group"),
	choice("fifo_delay", func(s *Settings) *string { return &s.FIFODelay }, "pass", "block"),
	choice("lease_expiry_counts", func(s *Settings) *string { return &s.LeaseExpiryCounts }, on, off),
	choice("late_ack", func(s *Settings) *string { return &s.LateAck }, "ok", "404"),
	choice("batch", func(s *Settings) *string { return &s.Batch }, on, off),
	choice("redrive_path", func(s *Settings) *string { return &s.RedrivePath }, "source", "dlq"),
	choice("redrive_id", func(s *Settings) *string { return &s.RedriveID }, "keep", "new"),
	choice("redrive_resets", func(s *Settings) *string { return &s.RedriveResets }, on, off),
	choice("discovery_params", func(s *Settings) *string { return &s.DiscoveryParams }, "schema", "fields"),
	choice("success_status", func(s *Settings) *string { return &s.SuccessStatus }, "200", "201", "202"),
	choice("request_id_header", func(s *Settings) *string { return &s.RequestIDHeader }, on, off),
	choice("journal", func(s *Settings) *string { return &s.Journal }, "full", "keys", off),
	limit("rate_limit", func(s *Settings) *int { return &s.RateLimit }, 0, 1_000_000),
	limit("max_retries", func(s *Settings) *int { return &s.MaxRetries }, 5, 1000),
	limit("retention_days", func(s *Settings) *int { return &s.RetentionDays }, 14, maxRetentionDays),
	limit("visibility_timeout", func(s *Settings) *int { return &s.VisibilityTimeout }, 30, maxVisibility),
}

func choice(name string, field func(*Settings) *string, values ...string) Switch {
	return Switch{Name: name, Values: values, Default: values[0], text: field}
}

func limit(name string, field func(*Settings) *int, fallback, highest int) Switch {
	return Switch{Name: name, Default: strconv.Itoa(fallback), Max: highest, number: field}
}

// Switches lists every setting.
func Switches() []Switch { return slices.Clone(switches) }

// Set changes one setting by its name. An empty value means the default.
func (s *Settings) Set(name, value string) error {
	i := slices.IndexFunc(switches, func(w Switch) bool { return w.Name == name })
	if i < 0 {
		return fmt.Errorf("no setting %q; there are %s", name, strings.Join(switchNames(), ", "))
	}
	w := switches[i]
	if value == "" {
		value = w.Default
	}
	if w.number == nil {
		*w.text(s) = value
		return w.check(s)
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		return fmt.Errorf("%s is %q, want a number from 0 to %d", name, value, w.Max)
	}
	*w.number(s) = n
	return w.check(s)
}

// Get returns the value of every setting by name.
func (s *Settings) Get() map[string]string {
	values := make(map[string]string, len(switches))
	for _, w := range switches {
		values[w.Name] = w.value(s)
	}
	return values
}

// Validate reports every setting that has a value which does not exist.
func (s *Settings) Validate() error {
	var errs []error
	for _, w := range switches {
		errs = append(errs, w.check(s))
	}
	return errors.Join(errs...)
}

// withDefaults fills what is empty.
func (s Settings) withDefaults() Settings {
	for _, w := range switches {
		if w.text != nil && *w.text(&s) == "" {
			*w.text(&s) = w.Default
		}
		if w.number != nil && *w.number(&s) == 0 {
			*w.number(&s), _ = strconv.Atoi(w.Default)
		}
	}
	return s
}

func (w Switch) value(s *Settings) string {
	if w.text != nil {
		return *w.text(s)
	}
	return strconv.Itoa(*w.number(s))
}

func (w Switch) check(s *Settings) error {
	if w.text != nil {
		if value := *w.text(s); value != "" && !slices.Contains(w.Values, value) {
			return fmt.Errorf("%s is %q, want one of %s", strings.ToUpper(w.Name), value, strings.Join(w.Values, ", "))
		}
		return nil
	}
	if n := *w.number(s); n < 0 || n > w.Max {
		return fmt.Errorf("%s is %d, want a number from 0 to %d", strings.ToUpper(w.Name), n, w.Max)
	}
	return nil
}

func switchNames() []string {
	names := make([]string, len(switches))
	for i, w := range switches {
		names[i] = w.Name
	}
	return names
}
