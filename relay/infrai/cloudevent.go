package infrai

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/outbox-relay/outbox-relay/outbox"
)

// The envelope "cloudevents" is CloudEvents 1.0 in the structured JSON form
// (https://github.com/cloudevents/spec, "CloudEvents" and "JSON Event Format").
// What an event must have and a message has not right is refused: a wrong source
// or type would be another event. What an event may have is left out then.

// The headers that an event takes its attributes from.
const (
	headerSource      = "ce-source"
	headerType        = "ce-type"
	headerTraceParent = "traceparent"
	headerTraceState  = "tracestate"
)

var (
	errHeaders = errors.New("the headers are not a JSON object of strings")
	errSource  = errors.New("the header " + headerSource + " is no URI or path of one")
	errType    = errors.New("the header " + headerType + " is empty or holds what a CloudEvent must not")
)

// eventFrame is about what an envelope adds to the texts that it takes in.
const eventFrame = 256

// attributes are what an event says beside its data.
type attributes struct {
	source, eventType, subject, time, traceParent, traceState string
}

// attributesOf reads them from a row. The settings of its envelope are checked
// where they are made.
func attributesOf(row *outbox.Row) (attributes, error) {
	a := attributes{source: row.Envelope.Source, eventType: row.Envelope.Type, time: timestamp(row.CreatedAt)}
	if isText(row.OrderingKey) {
		a.subject = row.OrderingKey
	}
	if row.Headers != "" {
		if err := a.read(row.Headers); err != nil {
			return a, err
		}
	}
	switch {
	case !isReference(a.source):
		return a, errSource
	case !isText(a.eventType):
		return a, errType
	}
	return a, nil
}

// read takes attributes from the headers of a message. Names are compared
// exactly. Of two with one name, which Postgres does not store, the last counts.
func (a *attributes) read(headers string) error {
	start := skipSpace(headers, 0)
	if start == len(headers) || headers[start] != '{' || !utf8.ValidString(headers) {
		return errHeaders
	}
	for m := (members{text: headers, at: start + 1}); ; {
		name, value, more := m.next()
		if !more {
			if m.end() < 0 {
				return errHeaders
			}
			break
		}
		if err := a.take(unquoted(name), value); err != nil {
			return err
		}
	}
	if !isTraceParent(a.traceParent) {
		a.traceParent, a.traceState = "", ""
	}
	if !graphicText(a.traceState) {
		a.traceState = ""
	}
	return nil
}

func (a *attributes) take(name, value string) error {
	var to *string
	switch name {
	case headerSource:
		to = &a.source
	case headerType:
		to = &a.eventType
	case headerTraceParent:
		to = &a.traceParent
	case headerTraceState:
		to = &a.traceState
	default:
		return nil
	}
	if value[0] != '"' {
		return errHeaders
	}
	*to = unquoted(value[1 : len(value)-1])
	return nil
}

// unquoted is the text of a JSON string without its quotes.
func unquoted(raw string) string {
	if strings.IndexByte(raw, '\\') < 0 {
		return raw
	}
	text, _ := jsontext.AppendUnquote(nil, `"`+raw+`"`) // half a surrogate pair becomes U+FFFD
	return string(text)
}

// appendEvent appends the event that a row is, in canonical form.
func appendEvent(dst []byte, row *outbox.Row) ([]byte, error) {
	a, err := attributesOf(row)
	if err != nil {
		return dst, err
	}
	dst = append(dst, `{"data":`...)
	if dst, err = appendCanonical(dst, row.Payload); err != nil {
		return dst, fmt.Errorf("payload: %w", err)
	}
	dst = append(dst, `,"datacontenttype":"application/json","id":`...)
	dst = appendKey(dst, row.Key)
	dst = appendAttribute(dst, "source", a.source)
	dst = append(dst, `,"specversion":"1.0"`...)
	dst = appendAttribute(dst, "subject", a.subject)
	dst = appendAttribute(dst, "time", a.time)
	dst = appendAttribute(dst, "traceparent", a.traceParent)
	dst = appendAttribute(dst, "tracestate", a.traceState)
	dst = appendAttribute(dst, "type", a.eventType)
	return append(dst, '}'), nil
}

// appendAttribute appends an attribute that has a value.
func appendAttribute(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	dst = append(dst, '"', ':')
	dst, _ = jsontext.AppendQuote(dst, value) // fails for what is no UTF-8, which was checked
	return dst
}

// timestamp writes a time as RFC 3339 wants it, with four digits for the year
// and those of the microseconds that say something.
func timestamp(t time.Time) string {
	t = t.UTC()
	if t.IsZero() || t.Year() < 1 || t.Year() > 9999 {
		return ""
	}
	return t.Format("2006-01-02T15:04:05.999999Z")
}

// isText reports whether s can be an attribute: not empty, no control characters
// and no code points that stand for no character.
func isText(s string) bool {
	return s != "" && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) || r&0xfffe == 0xfffe || r >= 0xfdd0 && r <= 0xfdef
	})
}

// isReference reports whether s is a URI or the path of one, not empty.
func isReference(s string) bool {
	if !graphic(s) || strings.ContainsAny(s, "\"<>\\^`{|}") {
		return false
	}
	_, err := url.Parse(s)
	return s != "" && err == nil
}

// isTraceParent reports whether s is a traceparent of W3C Trace Context
// (https://www.w3.org/TR/trace-context/): later versions may be longer.
func isTraceParent(s string) bool {
	const version, trace, parent, length = 2, 35, 52, 55
	if len(s) < length || !graphic(s) || s[version] != '-' || s[trace] != '-' || s[parent] != '-' {
		return false
	}
	if s[:version] == "ff" || s[:version] == "00" && len(s) > length || len(s) > length && s[length] != '-' {
		return false
	}
	for i := range length {
		if i != version && i != trace && i != parent && strings.IndexByte("0123456789abcdef", s[i]) < 0 {
			return false
		}
	}
	return strings.Trim(s[version+1:trace], "0") != "" && strings.Trim(s[trace+1:parent], "0") != ""
}

// graphicText reports whether s is printable ASCII, spaces included.
func graphicText(s string) bool { return graphic(strings.ReplaceAll(s, " ", "")) }
