package pgtext

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
)

// Distrust reports whether a connection was given up because one side does not
// trust the other's certificate: it is of another authority, for another name or
// out of date, or the other side of the encryption is not the one that knows the
// password. A person has to cure that.
func Distrust(err error) bool {
	if err == nil {
		return false
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return true
	}
	// Of pgx, and with another wording of the server.
	return strings.Contains(err.Error(), "channel binding")
}
