package emulator

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// digest identifies the bytes of a body.
type digest = [sha256.Size]byte

// call is one request on its way through the server. Calls are pooled: who
// keeps something of body or members copies it.
type call struct {
	request  *http.Request
	route    *route // nil if there is none
	settings *Settings
	now      time.Time // by the queue's clock
	started  time.Time // by the real one
	discard  bool      // as [Config.Discard]

	body    []byte
	digest  digest
	members []member
	queue   string // what the path or the body names
	key     string

	outcome  Outcome
	accepted []*message // what this call put into a queue

	buffer  bytes.Buffer
	reader  bytes.Buffer
	decoder *jsontext.Decoder
	out     []byte
}

// member is a field of the body: its name without quotes and its JSON.
type member struct {
	name  []byte
	value jsontext.Value
}

// maxBody is far above the largest message, so that a message above the limit
// is still read and answered as what it is.
const maxBody = 2 << 20

// maxPooled keeps rare large bodies out of the pool.
const maxPooled = 64 << 10

var calls = sync.Pool{New: func() any { return &call{decoder: jsontext.NewDecoder(new(bytes.Buffer))} }}

func (c *call) free() {
	if c.buffer.Cap() > maxPooled || cap(c.out) > maxPooled {
		return
	}
	c.buffer.Reset()
	c.reader = bytes.Buffer{}
	clear(c.members)
	*c = call{buffer: c.buffer, decoder: c.decoder, members: c.members[:0], out: c.out[:0]}
	calls.Put(c)
}

// read takes the body in and finds the names by which the call is known: to
// faults, keys and journal. It returns a refusal if the body cannot be used.
func (c *call) read() (answer, error) {
	c.key = c.request.Header.Get("Idempotency-Key")
	if c.request.Method != http.MethodGet {
		if _, err := c.buffer.ReadFrom(io.LimitReader(c.request.Body, maxBody+1)); err != nil {
			return answer{}, err
		}
	}
	c.body = c.buffer.Bytes()
	if c.wantsDigest() {
		c.digest = sha256.Sum256(c.body)
	}
	if len(c.body) > maxBody {
		return refuse(http.StatusRequestEntityTooLarge, codeTooLarge, "the body is larger than "+strconv.Itoa(maxBody)+" bytes"), nil
	}
	if c.route == nil || len(c.route.fields) == 0 || len(bytes.TrimSpace(c.body)) == 0 {
		return answer{}, nil
	}
	if err := c.split(); err != nil {
		return refuse(http.StatusBadRequest, codeInvalidJSON, err.Error()), nil
	}
	if c.route.names == "" {
		c.queue, _ = c.text(c.route.queueField())
	}
	return c.findKey(), nil
}

// wantsDigest reports whether anything looks at the digest.
func (c *call) wantsDigest() bool {
	return c.settings.Journal != off || !c.discard
}

// split finds the members of the body, which must be a JSON object.
func (c *call) split() error {
	// The decoder works on a buffer's bytes in place, and takes them out of it.
	c.reader = *bytes.NewBuffer(c.body)
	c.decoder.Reset(&c.reader)
	if kind := c.decoder.PeekKind(); kind != '{' {
		if _, err := c.decoder.ReadValue(); err != nil {
			return plain(err)
		}
		return errNotObject
	}
	_, _ = c.decoder.ReadToken()
	for c.decoder.PeekKind() != '}' {
		name, err := c.next()
		if err != nil {
			return plain(err)
		}
		value, err := c.next()
		if err != nil {
			return plain(err)
		}
		c.members = append(c.members, member{name: name[1 : len(name)-1], value: value})
	}
	if _, err := c.decoder.ReadToken(); err != nil {
		return plain(err)
	}
	if _, err := c.decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return errTrailing
	}
	return nil
}

// next reads a value and returns it as a part of the body.
func (c *call) next() (jsontext.Value, error) {
	value, err := c.decoder.ReadValue()
	if err != nil {
		return nil, err
	}
	end := c.decoder.InputOffset()
	return jsontext.Value(c.body[end-int64(len(value)) : end]), nil
}

// findKey settles which idempotency key the call has.
func (c *call) findKey() answer {
	inBody, given := c.text("idempotency_key")
	switch {
	case c.settings.KeySource == "header":
	case c.settings.KeySource == "body":
		c.key = inBody
	case given && c.key != "" && inBody != c.key:
		return refuse(http.StatusBadRequest, codeKeyMismatch, "the Idempotency-Key header and idempotency_key differ")
	case given:
		c.key = inBody
	}
	return answer{}
}

// field returns the JSON of a member, nil if it is absent or null.
func (c *call) field(name string) jsontext.Value {
	for _, m := range c.members {
		if string(m.name) == name && m.value.Kind() != 'n' {
			return m.value
		}
	}
	return nil
}

// text returns a member that is a string.
func (c *call) text(name string) (value string, given bool) {
	raw := c.field(name)
	if raw.Kind() != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	unquoted, err := jsontext.AppendUnquote(nil, raw)
	return string(unquoted), err == nil
}
