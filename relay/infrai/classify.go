package infrai

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/outbox-relay/outbox-relay/relay"
)

// The codes that say more than the status.
const (
	codeNoCredit = "INSUFFICIENT_CREDIT"
	codeNoQueue  = "QUEUE_NOT_FOUND"
)

// classOf is the table in the package's documentation, for an answer that did
// not accept the message.
func classOf(status int, enveloped bool, code string) relay.Class {
	class := classOfStatus(status, enveloped)
	switch {
	case class == relay.Refused && code == codeNoCredit:
		return relay.EndpointClosed
	case class == relay.Refused && code == codeNoQueue:
		return relay.QueueClosed
	}
	return class
}

func classOfStatus(status int, enveloped bool) relay.Class {
	switch status {
	case http.StatusPartialContent, http.StatusMultiStatus:
		return relay.UnknownOutcome
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden,
		http.StatusMethodNotAllowed, http.StatusProxyAuthRequired, http.StatusUpgradeRequired:
		return relay.EndpointClosed
	case http.StatusNotFound:
		return relay.QueueClosed
	case http.StatusRequestTimeout, http.StatusMisdirectedRequest, http.StatusTooEarly:
		return relay.Transient
	case http.StatusConflict:
		return relay.Conflict
	case http.StatusTooManyRequests:
		return relay.RateLimited
	}
	switch {
	case status >= 500:
		return relay.Transient
	case status >= 400:
		return relay.Refused
	case status >= 300:
		return relay.EndpointClosed
	case status >= 200 && enveloped:
		return relay.Refused
	}
	return relay.UnknownOutcome
}

// judge turns a whole answer into a receipt or an error.
func (p *Publisher) judge(resp *http.Response, body string, complete bool) (relay.Receipt, error) {
	e, enveloped := envelope{}, false
	if complete {
		e, enveloped = decodeEnvelope(body)
	}
	if e.requestID == "" {
		e.requestID = headerID(resp.Header)
	}
	status := resp.StatusCode
	if enveloped && e.ok && succeeded(status) {
		return relay.Receipt{QueueMessageID: e.messageID, RequestID: e.requestID}, nil
	}
	refusal := &relay.PublishError{
		Class:     classOf(status, enveloped && !e.ok, e.code),
		Status:    status,
		Code:      e.code,
		Message:   p.describe(resp, e, enveloped) + p.size(resp),
		RequestID: e.requestID,
	}
	if status == http.StatusTooManyRequests || status >= 500 {
		refusal.RetryAfter = retryAfter(resp.Header["Retry-After"], p.now(), p.cfg.MaxRetryAfter)
	}
	return relay.Receipt{}, refusal
}

// succeeded reports whether a status says that everything was done.
func succeeded(status int) bool {
	return status >= 200 && status < 300 && status != http.StatusPartialContent && status != http.StatusMultiStatus
}

// describe says in one line what the answer was, without its text unless that
// is wanted.
func (p *Publisher) describe(resp *http.Response, e envelope, enveloped bool) string {
	status := resp.StatusCode
	switch {
	case status >= 300 && status < 400:
		return "redirects are not followed" + target(resp.Header.Get("Location"))
	case enveloped && e.text != "" && p.cfg.ErrorText:
		return oneLine(e.text)
	case enveloped:
		return ""
	case status < 300:
		return "the answer is not one of the queue's" + contentType(resp.Header)
	}
	return strings.ToLower(http.StatusText(status))
}

// size says how large a request was that was too large; the queue may or may not
// say what it takes.
func (p *Publisher) size(resp *http.Response) string {
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		return ""
	}
	return fmt.Sprintf(" (the request had %d bytes, INFRAI_MAX_BODY_BYTES is %d)", resp.Request.ContentLength, p.cfg.MaxBodyBytes)
}

// target names where a redirect leads: the host alone, because the rest of an
// address may hold a secret.
func target(location string) string {
	u, err := url.Parse(location)
	if err != nil || u.Host == "" || len(u.Host) > maxIdentifier || !graphic(u.Host) {
		return ""
	}
	return ": this one leads to " + u.Host
}

// contentType names the type of an answer that is none, since text/html tells
// a person that a proxy spoke.
func contentType(header http.Header) string {
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	if kind == "" || len(kind) > maxCode || !graphic(kind) {
		return ""
	}
	return ": its type is " + kind
}

// maxText is how much of the queue's text is kept.
const maxText = 200

// oneLine makes a text of one line, of at most maxText bytes.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// headerID is the request's id as a header has it.
func headerID(header http.Header) string {
	id := header.Get("X-Infrai-Request-Id")
	if len(id) > maxIdentifier || !graphic(id) {
		return ""
	}
	return id
}
