package infrai

import (
	"bytes"
	"cmp"
	"encoding/binary"
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
	// head is the name's first eight bytes as a number, which decides nearly
	// every comparison.
	head    uint64
	escaped bool // the name holds a backslash
}

var (
	errNotJSON   = errors.New("not valid JSON")
	errNotUTF8   = errors.New("not valid UTF-8")
	errDuplicate = errors.New("an object has two members of one name")
)

var canonicals = sync.Pool{New: func() any { return new(canonical) }}

// maxScratch keeps rare large buffers out of the pool.
const maxScratch = 32 << 10

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
	m.head, m.escaped = head(dst[m.name+1 : m.nameEnd-1])
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
	start, end := members[0].name, members[len(members)-1].end
	compare := func(a, b *span) int { return compareNames(dst, a, b) }
	moved := sortSpans(members, compare)
	for i := 1; i < len(members); i++ {
		if compare(&members[i-1], &members[i]) == 0 {
			return errDuplicate
		}
	}
	if !moved {
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

// fewMembers is up to where sorting by insertion is the fastest way.
const fewMembers = 24

// sortSpans sorts members and reports whether any had to move.
func sortSpans(members []span, compare func(a, b *span) int) (moved bool) {
	if len(members) > fewMembers {
		slices.SortStableFunc(members, func(a, b span) int { return compare(&a, &b) })
		return true
	}
	for i := 1; i < len(members); i++ {
		j := i
		for j > 0 && compare(&members[i], &members[j-1]) < 0 {
			j--
		}
		if j == i {
			continue
		}
		m := members[i]
		copy(members[j+1:i+1], members[j:i])
		members[j] = m
		moved = true
	}
	return moved
}

func (c *canonical) is(i int, b byte) bool { return i < len(c.src) && c.src[i] == b }

// head returns the first eight bytes of a name as a number, with zeros behind a
// shorter one: a zero byte is always escaped and so never the same.
func head(name []byte) (head uint64, escaped bool) {
	if len(name) >= 8 {
		head = binary.BigEndian.Uint64(name)
	} else {
		for i, b := range name {
			head |= uint64(b) << (56 - 8*i)
		}
	}
	return head, bytes.IndexByte(name, '\\') >= 0
}

// compareNames orders names by their characters. The quotes are left out,
// because a space and a ! sort before them.
func compareNames(dst []byte, a, b *span) int {
	switch {
	case a.escaped || b.escaped:
		return strings.Compare(unescape(dst[a.name:a.nameEnd]), unescape(dst[b.name:b.nameEnd]))
	case a.head != b.head:
		return cmp.Compare(a.head, b.head)
	}
	return bytes.Compare(dst[a.name+1:a.nameEnd-1], dst[b.name+1:b.nameEnd-1])
}

func unescape(name []byte) string {
	plain, _ := jsontext.AppendUnquote(nil, name) // scanned before
	return string(plain)
}
