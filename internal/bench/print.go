package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Print writes the report for people.
func (r *Report) Print(out io.Writer) error {
	workload := r.Workload
	if workload == "" {
		workload = fmt.Sprintf("%d messages", r.Messages)
	}
	fmt.Fprintf(out, "%s, %d CPUs, Postgres %s, %s, %d runs\n\n", r.Go, r.CPUs, r.Postgres, workload, r.Runs)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "what\tmedian\tmin\tmax\tunit\tbudget\t")
	for _, result := range r.Results {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t\n", result.What,
			number(result.Median), number(result.Min), number(result.Max), result.Unit, result.verdict())
	}
	return table.Flush()
}

func (r Result) verdict() string {
	switch {
	case r.Budget == "":
		return ""
	case r.Met:
		return r.Budget + ": met"
	}
	return r.Budget + ": MISSED"
}

// number prints three digits or more.
func number(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}
