package infraiadmin

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"
)

// envelope is what the queue wraps its answers in.
type envelope struct {
	OK    *bool           `json:"ok"`
	Data  json.RawMessage `json:"data"`
	Error struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Hint    string `json:"hint"`
	} `json:"error"`
	Metadata struct {
		RequestID string `json:"request_id"`
	} `json:"metadata"`
}

// open reads an answer. What is no JSON leaves the envelope empty; a member of
// another type than expected is left out, the others are read.
func open(body []byte) (e envelope) {
	_ = json.Unmarshal(body, &e)
	return e
}

// said reports whether the answer says if it is ok: else it is no envelope.
func (e envelope) said() bool { return e.OK != nil }

const (
	maxCode       = 64
	maxIdentifier = 200
	maxText       = 200
)

// codeText is what codes look like. Something else in their place may be
// anything.
var codeText = regexp.MustCompile(`^[A-Z0-9_]+$`)

func (e envelope) code() string {
	if len(e.Error.Code) > maxCode || !codeText.MatchString(e.Error.Code) {
		return ""
	}
	return e.Error.Code
}

// requestID is the id by which the queue's people find the request.
func (e envelope) requestID(header http.Header) string {
	for _, id := range []string{e.Metadata.RequestID, header.Get("X-Infrai-Request-Id")} {
		if id != "" && len(id) <= maxIdentifier && graphic(id) {
			return id
		}
	}
	return ""
}

// errorText is what the queue says, if the settings want it. A text that repeats
// the key is left out.
func (c *Client) errorText(e envelope) string {
	text := e.Error.Message
	if text == "" {
		text = e.Error.Hint
	}
	key, err := c.apiKey()
	if !c.cfg.ErrorText || err != nil || strings.Contains(text, key) {
		return ""
	}
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	return text
}

// printable reports whether text is one line of printable ASCII.
func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// data asks and returns the data of a success. The error is an [*Error] unless
// ctx ended.
func (c *Client) data(ctx context.Context, r request) (json.RawMessage, error) {
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	e := open(a.body)
	if a.status/100 == 2 && e.said() && *e.OK {
		return e.Data, nil
	}
	return nil, c.refusal(r, a, e)
}
