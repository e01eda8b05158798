package cdc

import (
	"fmt"
	"strconv"
	"strings"
)

// lsn is a position in the WAL, as a number.
type lsn uint64

// String is the position as Postgres writes a pg_lsn, such as 16/B374D848.
func (l lsn) String() string {
	return fmt.Sprintf("%X/%X", uint32(l>>32), uint32(l))
}

// parseLSN reads the text of a pg_lsn.
func parseLSN(text string) (lsn, error) {
	high, low, found := strings.Cut(text, "/")
	if !found {
		return 0, fmt.Errorf("parse position %q: want two hexadecimal numbers with a slash between", text)
	}
	upper, err := strconv.ParseUint(high, 16, 32)
	if err != nil {
		return 0, fmt.Errorf("parse position %q: %w", text, err)
	}
	lower, err := strconv.ParseUint(low, 16, 32)
	if err != nil {
		return 0, fmt.Errorf("parse position %q: %w", text, err)
	}
	return lsn(upper<<32 | lower), nil
}
