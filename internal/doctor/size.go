package doctor

import "fmt"

// size writes bytes for people.
func size(bytes int64) string {
	switch {
	case bytes < 0:
		return "no limit"
	case bytes >= gibibyte:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/gibibyte)
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/mebibyte)
}
