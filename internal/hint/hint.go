// Package hint finds what a person can do about an error. An error that knows
// has a method Hint, whose text is a sentence with a command or a place in it.
package hint

import "errors"

// Of is the hint of err, or of the first error that it wraps and that has one;
// empty if nobody knows.
func Of(err error) string {
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) {
		return hinted.Hint()
	}
	return ""
}
