package cdc

import (
	"bytes"
	"encoding/binary"
)

// cursor reads a message of the server from front to back. Reading past the
// end sets short and gives zeros from there on, so that the length needs to be
// asked about once and not at every field. It never allocates. It moves by an
// index and not by its slice, which would cost a write barrier at every step.
type cursor struct {
	data  []byte
	at    int
	short bool
}

// left is the number of bytes that were not read.
func (c *cursor) left() int { return len(c.data) - c.at }

// take is the next n bytes, which belong to the message.
func (c *cursor) take(n int) []byte {
	if n < 0 || n > c.left() {
		c.at, c.short = len(c.data), true
		return nil
	}
	c.at += n
	return c.data[c.at-n : c.at : c.at]
}

func (c *cursor) byte() byte {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) uint16() uint16 {
	if b := c.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) uint32() uint32 {
	if b := c.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) uint64() uint64 {
	if b := c.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (c *cursor) lsn() lsn { return lsn(c.uint64()) }

// value is a length and that many bytes.
func (c *cursor) value() []byte {
	return c.take(int(int32(c.uint32())))
}

// name is the text up to a zero byte.
func (c *cursor) name() []byte {
	text := c.take(bytes.IndexByte(c.data[c.at:], 0))
	c.take(1)
	return text
}
