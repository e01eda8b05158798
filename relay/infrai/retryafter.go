package infrai

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// retryAfter reads the pause that the headers ask for: the longest of several,
// at most limit, 0 without a sensible one.
func retryAfter(values []string, now time.Time, limit time.Duration) time.Duration {
	var longest time.Duration
	for _, value := range values {
		longest = max(longest, onePause(strings.TrimSpace(value), now, limit))
	}
	return longest
}

func onePause(value string, now time.Time, limit time.Duration) time.Duration {
	if isDecimal(value) {
		seconds, _ := strconv.ParseFloat(value, 64) // too large is +Inf
		if seconds >= limit.Seconds() || math.IsInf(seconds, 1) {
			return limit
		}
		return time.Duration(seconds * float64(time.Second))
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	// Sub does not overflow: it stops at the longest Duration.
	return min(max(at.Sub(now), 0), limit)
}

// isDecimal reports whether s is digits, with or without a fraction. What else
// a float may look like (signs, exponents, Inf) nobody means.
func isDecimal(s string) bool {
	end := scanDigits(s, 0)
	if end == 0 {
		return false
	}
	if end < len(s) && s[end] == '.' {
		fraction := scanDigits(s, end+1)
		return fraction > end+1 && fraction == len(s)
	}
	return end == len(s)
}
