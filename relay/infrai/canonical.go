package infrai

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// canonical writes JSON text in one form: members sorted by their names, no
// space between tokens, strings with as few escapes as there can be. Numbers
// stay as they are written, digit for digit.
type canonical struct {
	src     string
	members []span // of all open objects, the innermost last
	scratch []byte
}

// span is a member that was written: the positions of its name, quotes
// included, and of its end.
type span struct {
	name, nameEnd, end int
}

var (
	errNotJSON   = errors.New("not valid JSON")
	errNotUTF8   = errors.New("not valid UTF-8")
	errDuplicate = errors.New("an object has two members of one name")
)

var canonicals = sync.Pool{New: func() any { return new(canonical) }}

// maxScratch keeps rare large buffers out of the pool.
const maxScratch = 64 << 10

// appendCanonical appends the canonical form of a JSON object.
func appendCanonical(dst []byte, src string) ([]byte, error) {
	if !utf8.ValidString(src) {
		return dst, errNotUTF8
	}
	c := canonicals.Get().(*canonical)
	c.src = src
	dst, i, err := c.value(dst, skipSpace(src, 0), 0)
	if err == nil && skipSpace(src, i) != len(src) {
		err = errNotJSON
	}
	c.src, c.members = "", c.members[:0]
	if cap(c.scratch) <= maxScratch {
		canonicals.Put(c)
	}
	return dst, err
}

// value appends the value at position i and returns the position behind it.
func (c *canonical) value(dst []byte, i, depth int) ([]byte, int, error) {
	if i >= len(c.src) || depth > maxDepth {
		return dst, i, errNotJSON
	}
	switch c.src[i] {
	case '"':
		return c.text(dst, i)
	case '{':
		return c.object(dst, i+1, depth)
	case '[':
		return c.array(dst, i+1, depth)
	}
	end := scanValue(c.src, i, depth)
	if end < 0 {
		return dst, i, errNotJSON
	}
	return append(dst, c.src[i:end]...), end, nil
}

// text appends a string. What Postgres prints is canonical already; other
// sources may have escaped what needs no escape.
func (c *canonical) text(dst []byte, i int) ([]byte, int, error) {
	end, escaped := scanString(c.src, i)
	if end < 0 {
		return dst, i, errNotJSON
	}
	raw := c.src[i:end]
	if !escaped || !strings.Contains(raw, `\u`) && !strings.Contains(raw, `\/`) {
		return append(dst, raw...), end, nil
	}
	plain, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return dst, i, errNotJSON
	}
	dst, err = jsontext.AppendQuote(dst, plain)
	return dst, end, err
}

func (c *canonical) array(dst []byte, i, depth int) ([]byte, int, error) {
	dst = append(dst, '[')
	i = skipSpace(c.src, i)
	if c.is(i, ']') {
		return append(dst, ']'), i + 1, nil
	}
	for {
		var err error
		if dst, i, err = c.value(dst, skipSpace(c.src, i), depth+1); err != nil {
			return dst, i, err
		}
		i = skipSpace(c.src, i)
		switch {
		case c.is(i, ','):
			dst = append(dst, ',')
			i++
		case c.is(i, ']'):
			return append(dst, ']'), i + 1, nil
		default:
			return dst, i, errNotJSON
		}
	}
}

func (c *canonical) object(dst []byte, i, depth int) ([]byte, int, error) {
	dst = append(dst, '{')
	first := len(c.members)
	i = skipSpace(c.src, i)
	if c.is(i, '}') {
		return append(dst, '}'), i + 1, nil
	}
	for {
		var err error
		if dst, i, err = c.member(dst, skipSpace(c.src, i), depth); err != nil {
			return dst, i, err
		}
		i = skipSpace(c.src, i)
		switch {
		case c.is(i, ','):
			dst = append(dst, ',')
			i++
		case c.is(i, '}'):
			err = c.sort(dst, c.members[first:])
			c.members = c.members[:first]
			return append(dst, '}'), i + 1, err
		default:
			return dst, i, errNotJSON
		}
	}
}

// member appends a member and notes where it stands.
func (c *canonical) member(dst []byte, i, depth int) ([]byte, int, error) {
	m := span{name: len(dst)}
	if !c.is(i, '"') {
		return dst, i, errNotJSON
	}
	dst, i, err := c.text(dst, i)
	if err != nil {
		return dst, i, err
	}
	m.nameEnd = len(dst)
	if i = skipSpace(c.src, i); !c.is(i, ':') {
		return dst, i, errNotJSON
	}
	dst = append(dst, ':')
	if dst, i, err = c.value(dst, skipSpace(c.src, i+1), depth+1); err != nil {
		return dst, i, err
	}
	m.end = len(dst)
	c.members = append(c.members, m)
	return dst, i, nil
}

// sort puts the members of one object, which stand one after the other with
// commas between them, into the order of their names.
func (c *canonical) sort(dst []byte, members []span) error {
	compare := func(a, b span) int { return compareNames(dst[a.name:a.nameEnd], dst[b.name:b.nameEnd]) }
	start, end := members[0].name, members[len(members)-1].end
	sorted := slices.IsSortedFunc(members, compare)
	if !sorted {
		slices.SortFunc(members, compare)
	}
	for i := 1; i < len(members); i++ {
		if compare(members[i-1], members[i]) == 0 {
			return errDuplicate
		}
	}
	if sorted {
		return nil
	}
	c.scratch = c.scratch[:0]
	for i, m := range members {
		if i > 0 {
			c.scratch = append(c.scratch, ',')
		}
		c.scratch = append(c.scratch, dst[m.name:m.end]...)
	}
	copy(dst[start:end], c.scratch)
	return nil
}

func (c *canonical) is(i int, b byte) bool { return i < len(c.src) && c.src[i] == b }

// compareNames orders names, quotes included, by their characters. The quotes
// are left out, because a space sorts before them.
func compareNames(a, b []byte) int {
	a, b = a[1:len(a)-1], b[1:len(b)-1]
	if slices.Contains(a, '\\') || slices.Contains(b, '\\') {
		return cmp.Compare(unescape(a), unescape(b))
	}
	return cmp.Compare(string(a), string(b))
}

func unescape(name []byte) string {
	plain, _ := jsontext.AppendUnquote(nil, `"`+string(name)+`"`) // scanned before
	return string(plain)
}
