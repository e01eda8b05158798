// Package terminal makes text that others wrote safe to print.
package terminal

import "strings"

// Line puts a space in the place of each control character, of the sets C0 and C1 of
// Unicode: what somebody wrote into a table, or called an application, neither ends
// the line nor moves the cursor.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || 0x7f <= r && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}
