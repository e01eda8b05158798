package emulator

import (
	"encoding/binary"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// answer is what a call is told: data, or a code with a message.
type answer struct {
	status  int
	data    []byte // JSON, of a success
	code    string // of a failure
	message string
	header  http.Header // more headers; usually nil
	bare    bool        // data without an envelope
}

func (a *answer) ok() bool { return a.code == "" }

// refuse is an answer that says no.
func refuse(status int, code, message string) answer {
	return answer{status: status, code: code, message: message}
}

// appendEnvelope appends the JSON of the answer as the queue wraps it. The
// metadata of a failure is empty, as clients print it.
func (a *answer) appendEnvelope(b []byte, requestID string, took time.Duration) []byte {
	if a.bare {
		return append(b, a.data...)
	}
	if !a.ok() {
		return appendFailure(b, a.code, a.message)
	}
	b = append(b, `{"ok":true,"data":`...)
	if a.data == nil {
		b = append(b, "null"...)
	}
	b = append(b, a.data...)
	b = append(b, `,"error":null,"metadata":{"cost_usd":0,"latency_ms":`...)
	b = strconv.AppendFloat(b, float64(took.Microseconds())/1000, 'f', 3, 64)
	b = append(b, `,"vendor":"emulator","cache_hit":false,"request_id":"`...)
	b = append(b, requestID...)
	return append(b, `"}}`...)
}

func appendFailure(b []byte, code, message string) []byte {
	b = append(b, `{"ok":false,"data":null,"error":{"code":`...)
	b = appendString(b, code)
	b = append(b, `,"message":`...)
	b = appendString(b, message)
	return append(b, `},"metadata":{}}`...)
}

// appendString appends a JSON string. Bytes that are not UTF-8 become the
// replacement character.
func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

// newRequestID makes a UUID of version 7.
func newRequestID(now time.Time) string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], uint64(now.UnixMilli())<<16|rand.Uint64()>>52)
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	id[6] = 0x70 | id[6]&0x0f
	id[8] = 0x80 | id[8]&0x3f

	text := make([]byte, 0, 36)
	for i, group := range [...][2]int{{0, 4}, {4, 6}, {6, 8}, {8, 10}, {10, 16}} {
		if i > 0 {
			text = append(text, '-')
		}
		for _, octet := range id[group[0]:group[1]] {
			text = appendHex(text, uint64(octet), 2)
		}
	}
	return string(text)
}
