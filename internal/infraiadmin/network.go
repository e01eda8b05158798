package infraiadmin

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
)

// local reports whether the queue should be on this machine.
func (c *Client) local() bool {
	host := c.base.Hostname()
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// networkText says why there was no answer. Only texts that were made on this
// machine are told: some of the library's quote what a server sent, and that may
// repeat the request with its key.
func networkText(err error) string {
	var (
		operation   *net.OpError
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &certificate):
		return certificate.Error()
	case errors.As(err, &record):
		return "it does not speak TLS"
	case errors.As(err, &operation):
		return operation.Error()
	case errors.As(err, &name):
		return name.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection ended in the middle"
	}
	return "what came back is not HTTP, or a proxy refuses, or its variable is not an address"
}
