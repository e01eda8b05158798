package pgtext

import "regexp"

// brokenOff is a connection that somebody between us and the server breaks off.
// Whether that is seen as an end or as a reset is a matter of microseconds, and the
// port on our side is another one every time.
var brokenOff = regexp.MustCompile(`(failed to [a-z ]+: )?(unexpected EOF|(read|write) tcp \S+ (read|write): (connection reset by peer|broken pipe))`)

// Same is what errors have in common that tell of the same trouble with a
// connection: who tells of a trouble once compares this, and not the text.
func Same(err error) string {
	return brokenOff.ReplaceAllLiteralString(err.Error(), "connection broken off")
}
