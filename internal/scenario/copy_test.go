package scenario_test

import (
	"fmt"
	"io"
	"strings"
)

// copyRows are rows for COPY: key, queue, payload.
func copyRows(n int) io.Reader {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "copy-%d\torders\t{}\n", i)
	}
	return strings.NewReader(b.String())
}
