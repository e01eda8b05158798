package demo

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Print writes the account for people: a figure a line, and at the end whether
// it holds.
func (a *Account) Print(w io.Writer, colour bool) error {
	p := paint(colour)
	var b strings.Builder
	for _, section := range a.Sections {
		b.WriteByte('\n')
		for _, line := range section {
			fmt.Fprintf(&b, "  %-36s%9s   %s\n", line.Label, grouped(line.Value), line.verdict(p))
		}
	}
	if a.Holds() {
		fmt.Fprintf(&b, "\n%s\n", p.bold(p.green("The account holds: what was committed arrived, once and in order, and nothing else did.")))
	} else {
		fmt.Fprintf(&b, "\n%s\n", p.bold(p.red("The account does not hold.")))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// verdict is what stands behind a figure.
func (l Line) verdict(p paint) string {
	switch {
	case l.Problem != "":
		return p.bold(p.red("WRONG")) + "  " + l.Problem
	case l.Checked:
		return strings.TrimRight(p.green("ok")+"     "+p.dim(l.Note), " ")
	}
	return "       " + p.dim(l.Note)
}

// grouped writes a number with a comma between thousands.
func grouped[N int | int64](n N) string {
	text := strconv.FormatInt(int64(n), 10)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// paint colours text for a terminal, or leaves it as it is.
type paint bool

func (p paint) bold(text string) string  { return p.with("1", text) }
func (p paint) dim(text string) string   { return p.with("2", text) }
func (p paint) red(text string) string   { return p.with("31", text) }
func (p paint) green(text string) string { return p.with("32", text) }

func (p paint) with(code, text string) string {
	if !p || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
