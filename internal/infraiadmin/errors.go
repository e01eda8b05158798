package infraiadmin

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Problem is why a question was not answered, by what should happen next.
type Problem int

// The problems.
const (
	Unreachable Problem = iota + 1 // no connection, or it broke
	Untrusted                      // its certificate is not trusted
	Silent                         // no whole answer in time
	NoKey                          // no API key to send
	KeyRefused                     // 401
	Forbidden                      // 403
	NoCredit                       // 402
	NotFound                       // 404
	Conflict                       // 409
	TooMany                        // 429
	Redirected                     // 3xx
	Broken                         // 5xx
	Refused                        // any other no
	Unreadable                     // not an answer of the queue
)

// Error says why a question was not answered. It holds nothing secret.
type Error struct {
	// Act is what was tried.
	Act     string
	Problem Problem
	// Host is where.
	Host string
	// Local is set if that is this machine.
	Local bool
	// Status, Code and RequestID are from the answer; RetryAfter is its header.
	Status     int
	Code       string
	RequestID  string
	RetryAfter string
	// Text is the queue's own, if the settings want it.
	Text string
	// Err is the cause where there was no answer.
	Err error

	said bool // the answer is one of the queue, not of a server that is none
}

// meanings say what each problem is and what to do about it.
var meanings = map[Problem]struct {
	text, hint string
	person     bool
}{
	Unreachable: {"cannot reach the queue", "check INFRAI_BASE_URL, name resolution, proxy and firewall", false},
	Untrusted:   {"the certificate is not trusted", "check INFRAI_BASE_URL, and what this machine trusts (SSL_CERT_FILE names more)", true},
	Silent:      {"the queue does not answer", "ask again; INFRAI_REQUEST_TIMEOUT is how long it waits", false},
	NoKey:       {"no API key", "set INFRAI_API_KEY, or INFRAI_API_KEY_FILE to a file that can be read", true},
	KeyRefused:  {"the API key is refused", "set INFRAI_API_KEY (or the file) to a key of the project", true},
	Forbidden:   {"the API key may not do this", "use a key of the project with the right to do it", true},
	NoCredit:    {"the account has no credit", "top up the account", true},
	NotFound:    {"there is no such thing", "check the name, that the key is one of the same project, and INFRAI_BASE_URL", false},
	Conflict:    {"something else holds the name or the key", "look at what is there, then ask again", false},
	TooMany:     {"the queue asks to wait", "ask again in a minute", false},
	Redirected:  {"the queue redirects; the API key is not taken elsewhere", "set INFRAI_BASE_URL to the final address", true},
	Broken:      {"the queue is in trouble", "wait and ask again", false},
	Refused:     {"the queue refuses this", "`outbox-relay infrai discover` tells whether it describes the call otherwise", false},
	Unreadable:  {"what came back is not an answer of the queue", "check INFRAI_BASE_URL and what is between; if they are right, wait and ask again", false},
}

// Error implements error.
func (e *Error) Error() string {
	text := e.Act + ": " + e.Meaning()
	if e.Status != 0 {
		text += " (" + e.Answer()
		if e.RequestID != "" {
			text += ", request " + e.RequestID
		}
		text += ")"
	}
	switch {
	case e.Err != nil:
		text += ": " + e.Err.Error()
	case e.Text != "":
		text += ": " + strconv.Quote(e.Text)
	}
	return text
}

// Meaning says what the matter is, in words.
func (e *Error) Meaning() string {
	text := meanings[e.Problem].text
	if e.Problem == Unreachable || e.Problem == Untrusted || e.Problem == Silent {
		text += " at " + e.Host
	}
	return text
}

// Answer is the status of the answer and its code, empty without one.
func (e *Error) Answer() string {
	if e.Status == 0 {
		return ""
	}
	return strings.TrimSpace(strconv.Itoa(e.Status) + " " + e.Code)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Hint says what to do.
func (e *Error) Hint() string {
	switch {
	case e.Local && e.Problem == Unreachable:
		return "start the queue there, for example with `outbox-relay emulator`, or check INFRAI_BASE_URL"
	case e.Problem == TooMany && e.RetryAfter != "":
		return "ask again later; the queue says Retry-After: " + e.RetryAfter
	}
	return meanings[e.Problem].hint
}

// NeedsPerson reports whether asking again is no cure.
func (e *Error) NeedsPerson() bool { return meanings[e.Problem].person }

// refusal is the error of an answer that does not do what was asked.
func (c *Client) refusal(r request, a *answer, e envelope) *Error {
	failure := &Error{
		Act: r.act, Host: c.Host(), Status: a.status, Code: e.code(), RequestID: e.requestID(a.header),
		Text: c.errorText(e), Problem: problemOf(a.status, e.code(), e.said()), said: e.said(),
	}
	if after := a.header.Get("Retry-After"); failure.Problem == TooMany && len(after) <= maxRetryAfter && printable(after) {
		failure.RetryAfter = after
	}
	if failure.Problem == Unreadable {
		failure.Err = fmt.Errorf("no JSON envelope%s", kindOf(a.header))
	}
	return failure
}

// unreadable is the error of a success whose data makes no sense.
func (c *Client) unreadable(r request, why string) *Error {
	return &Error{Act: r.act, Host: c.Host(), Problem: Unreadable, Err: errors.New(why)}
}

// maxRetryAfter is longer than a date.
const maxRetryAfter = 40

func problemOf(status int, code string, enveloped bool) Problem {
	switch {
	case status == http.StatusPaymentRequired, code == "INSUFFICIENT_CREDIT":
		return NoCredit
	case status == http.StatusUnauthorized:
		return KeyRefused
	case status == http.StatusForbidden:
		return Forbidden
	case status == http.StatusNotFound, code == "QUEUE_NOT_FOUND":
		return NotFound
	case status == http.StatusConflict, strings.Contains(code, "EXIST"):
		return Conflict
	case status == http.StatusTooManyRequests:
		return TooMany
	case status >= 500:
		return Broken
	case status >= 400, enveloped && status < 300:
		return Refused
	case status >= 300:
		return Redirected
	}
	return Unreadable
}

// kindOf names the type of an answer, since text/html tells a person that a
// proxy spoke.
func kindOf(header http.Header) string {
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	if kind == "" || len(kind) > maxCode || !graphic(kind) {
		return ""
	}
	return ", its type is " + kind
}
