package outbox

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Postgres holds a JSON number as numeric, which ends here.
const (
	maxIntegerDigits  = 131_072
	maxFractionDigits = 16_383
)

// textSize is the number of bytes of payload::text for a payload of this JSON
// text, which is valid, compact and UTF-8 and has no repeated names. It refuses
// what jsonb cannot hold.
func textSize(text []byte) (int, error) {
	size := 0
	for i := 0; i < len(text); {
		used, printed, err := token(text[i:])
		if err != nil {
			return 0, err
		}
		i, size = i+used, size+printed
	}
	return size, nil
}

// token returns how many bytes of text the first token takes and how many
// Postgres prints for it.
func token(text []byte) (used, printed int, err error) {
	switch c := text[0]; {
	case c == ',' || c == ':':
		return 1, 2, nil // followed by a space
	case c == '"':
		return stringToken(text)
	case c == '-' || c >= '0' && c <= '9':
		return numberToken(text)
	default:
		return 1, 1, nil
	}
}

func stringToken(text []byte) (used, printed int, err error) {
	for used = 1; text[used] != '"'; {
		if text[used] != '\\' {
			used, printed = used+1, printed+1
			continue
		}
		n, r := unescape(text[used:])
		if r == 0 || r == utf8.RuneError {
			return 0, 0, payloadError("text that Postgres can hold", "the NUL character or half a surrogate pair")
		}
		used, printed = used+n, printed+printedSize(r)
	}
	return used + 1, printed + 2, nil
}

// unescape returns the length of the escape sequence at the start of text and
// the character that it stands for, or RuneError for half a surrogate pair. An
// escaped U+FFFD is an ordinary character, but the half of a pair is not.
func unescape(text []byte) (n int, r rune) {
	const simple, meaning = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if i := bytes.IndexByte([]byte(simple), text[1]); i >= 0 {
		return 2, rune(meaning[i])
	}
	r = hex(text[2:6])
	if !utf16.IsSurrogate(r) {
		if r == utf8.RuneError {
			r = '\u0800' // as long, and not mistaken for half a pair
		}
		return 6, r
	}
	if len(text) >= 12 && text[6] == '\\' && text[7] == 'u' {
		return 12, utf16.DecodeRune(r, hex(text[8:12]))
	}
	return 6, utf8.RuneError
}

func hex(digits []byte) rune {
	r, err := strconv.ParseUint(string(digits), 16, 16)
	if err != nil {
		return utf8.RuneError
	}
	return rune(r)
}

// printedSize is what a character that came escaped takes in the printed text.
func printedSize(r rune) int {
	switch {
	case r == '"' || r == '\\' || r == '\b' || r == '\f' || r == '\n' || r == '\r' || r == '\t':
		return 2
	case r < ' ':
		return len(`\u0000`)
	}
	return utf8.RuneLen(r)
}

// numberToken measures a number as numeric prints it: without an exponent, and
// with as many digits after the point as were given.
func numberToken(text []byte) (used, printed int, err error) {
	n := parseNumber(text)
	fraction := max(0, n.fraction-n.exponent)
	integer := 1
	if n.nonzero {
		integer = max(1, n.integer-n.leadingZeros+n.exponent)
	}
	if integer > maxIntegerDigits || fraction > maxFractionDigits {
		return 0, 0, payloadError("of numbers that numeric can hold", "one that it cannot")
	}
	printed = integer
	if fraction > 0 {
		printed += 1 + fraction
	}
	if n.negative && n.nonzero {
		printed++
	}
	return n.length, printed, nil
}

// number is a JSON number taken apart: how many digits it has where.
type number struct {
	length, integer, fraction, exponent int
	leadingZeros                        int // before the first other digit, on either side of the point
	negative, nonzero                   bool
}

func parseNumber(text []byte) (n number) {
	digits := &n.integer
	for i, c := range text {
		switch {
		case c == '-':
			n.negative = true
		case c == '.':
			digits = &n.fraction
		case c >= '0' && c <= '9':
			*digits++
			n.nonzero = n.nonzero || c != '0'
			if !n.nonzero {
				n.leadingZeros++
			}
		case c == 'e' || c == 'E':
			exponent := text[i+1:]
			if end := bytes.IndexAny(exponent, ",}]"); end >= 0 {
				exponent = exponent[:end]
			}
			n.length, n.exponent = i+1+len(exponent), clampedInt(exponent)
			return n
		default:
			n.length = i
			return n
		}
	}
	n.length = len(text)
	return n
}

// clampedInt reads an exponent; one with too many digits for an int becomes one
// that is far beyond every limit.
func clampedInt(digits []byte) int {
	n, err := strconv.Atoi(string(digits))
	const far = 1 << 30
	if err != nil || n > far || n < -far {
		n = far
		if digits[0] == '-' {
			n = -far
		}
	}
	return n
}
