package infrai

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/relay"
)

// noAnswer is the error of a request that was not answered. sent tells whether
// any byte of it may have left; if not, the queue cannot have the message.
func noAnswer(sent bool, err error) error {
	class := relay.Transient
	if sent {
		class = relay.UnknownOutcome
	}
	return &relay.PublishError{Class: class, Err: err}
}

// connecting reports whether an error is one of making a connection: then
// nothing was sent on it. It says no where that is not certain.
func connecting(err error) bool {
	var (
		operation   *net.OpError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &operation):
		return operation.Op == "dial" || operation.Op == "proxyconnect"
	case errors.As(err, &record):
		return record.Conn != nil // set only if the handshake began with something else
	}
	return errors.As(err, &certificate)
}

// reason tells a stop and a timeout from the network's own errors.
func reason(ctx context.Context, limited *deadline, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return context.Cause(limited)
	}
	return networkError{err}
}

// timeoutError is the end of a request by its own timeout.
type timeoutError struct{ after time.Duration }

func (e timeoutError) Error() string {
	return "no whole answer within " + strconv.FormatFloat(e.after.Seconds(), 'f', -1, 64) + "s"
}

// Is makes it a deadline for who asks.
func (e timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// networkError is an error of the transport with a text that holds nothing that
// a server said. Some of Go's texts quote the line that made no sense, and a
// server that repeats the request would put the payload there.
type networkError struct{ cause error }

func (e networkError) Error() string {
	if fromUs(e.cause) {
		return e.cause.Error()
	}
	text := e.cause.Error()
	for _, prefix := range [...]string{"net/http: ", "http: ", "http2: ", "tls: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	if end := strings.IndexAny(text, `":;`); end >= 0 {
		text = text[:end]
	}
	return strings.TrimSpace(text)
}

// Unwrap returns the cause.
func (e networkError) Unwrap() error { return e.cause }

// fromUs reports whether the text of an error was made on this machine alone.
func fromUs(err error) bool {
	var (
		operation   *net.OpError
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
	)
	return errors.As(err, &operation) || errors.As(err, &name) || errors.As(err, &certificate) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
