// Package secret holds text that must never reach a log, an error or a metric.
package secret

// Text is a secret. It prints as [redacted] through every way in which fmt,
// encoding/json and zap print a value; [Text.Reveal] is the only way to read it.
type Text struct{ value string }

const redacted = "[redacted]"

// New wraps value.
func New(value string) Text { return Text{value} }

// Reveal returns the secret.
func (t Text) Reveal() string { return t.value }

// Set reports whether there is a secret.
func (t Text) Set() bool { return t.value != "" }

// String implements fmt.Stringer.
func (t Text) String() string {
	if !t.Set() {
		return ""
	}
	return redacted
}

// GoString implements fmt.GoStringer.
func (t Text) GoString() string { return t.String() }

// MarshalText implements encoding.TextMarshaler.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler, so that settings can be
// read straight into a Text.
func (t *Text) UnmarshalText(b []byte) error {
	t.value = string(b)
	return nil
}
