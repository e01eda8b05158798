package doctor

import (
	"fmt"
	"io"
	"strings"
)

// colours of the statuses on a terminal.
var colours = map[Status]string{Pass: "\x1b[32m", Warn: "\x1b[33m", Fail: "\x1b[31m", Skip: "\x1b[2m"}

const colourOff = "\x1b[0m"

// Print writes the report for people: the summary, a line for each check, and
// below those that need it what is wrong and how to mend it.
func (r *Report) Print(w io.Writer, colour bool) error {
	var b strings.Builder
	fmt.Fprintln(&b, r.Summary())
	for _, c := range r.Checks {
		c.print(&b, colour)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Result) print(b *strings.Builder, colour bool) {
	on, off := "", ""
	if colour {
		on, off = colours[r.Status], colourOff
	}
	detail := r.Observed
	if r.Status == Skip {
		detail = r.Message
	}
	fmt.Fprintf(b, "%s%-4s%s  %s  %-24s  %s\n", on, r.Status, off, r.ID, r.Title, detail)
	if r.Status == Pass || r.Status == Skip {
		return
	}
	const indent = "           "
	for _, part := range []struct{ label, text string }{
		{"", r.Message}, {"wanted: ", r.Expected}, {"do: ", r.Remedy},
	} {
		if part.text != "" {
			fmt.Fprintln(b, indent+part.label+part.text)
		}
	}
	for statement := range strings.Lines(r.SQL) {
		fmt.Fprintln(b, indent+"  "+strings.TrimSuffix(statement, "\n"))
	}
}
