package infrai

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// HTTP-01 and HTTP-02: every legal form counts, nonsense is no pause, and
// nothing is longer than the limit.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	const limit = 5 * time.Minute
	now := time.Date(2025, time.March, 9, 1, 59, 58, 0, time.UTC)
	date := func(layout string, in time.Duration) string { return now.Add(in).Format(layout) }
	const rfc850 = "Monday, 02-Jan-06 15:04:05 GMT"

	tests := []struct {
		values []string
		want   time.Duration
	}{
		{[]string{"4"}, 4 * time.Second},
		{[]string{" 4 "}, 4 * time.Second},
		{[]string{"1.5"}, 1500 * time.Millisecond},
		{[]string{"4", "8"}, 8 * time.Second},
		{[]string{"8", "4"}, 8 * time.Second},
		{[]string{"nonsense", "8"}, 8 * time.Second},
		{[]string{date(http.TimeFormat, 4*time.Second)}, 4 * time.Second},
		{[]string{date(rfc850, 4*time.Second)}, 4 * time.Second},
		{[]string{date(time.ANSIC, 4*time.Second)}, 4 * time.Second},

		{nil, 0},
		{[]string{""}, 0},
		{[]string{"0"}, 0},
		{[]string{"0.0"}, 0},
		{[]string{date(http.TimeFormat, 0)}, 0},
		{[]string{date(http.TimeFormat, -10*time.Second)}, 0},
		{[]string{"Thu, 01 Jan 0001 00:00:00 GMT"}, 0},
		{[]string{"abc"}, 0},
		{[]string{"-3"}, 0},
		{[]string{"+3"}, 0},
		{[]string{"1e3"}, 0},
		{[]string{"0x10"}, 0},
		{[]string{"Inf"}, 0},
		{[]string{"NaN"}, 0},
		{[]string{"4s"}, 0},
		{[]string{"4, 8"}, 0},
		{[]string{"."}, 0},
		{[]string{"5."}, 0},
		{[]string{".5"}, 0},
		{[]string{"1.2.3"}, 0},

		{[]string{"300"}, limit},
		{[]string{"301"}, limit},
		{[]string{"86400"}, limit},
		{[]string{"9999999999"}, limit},
		{[]string{"99999999999999999999"}, limit},
		{[]string{"1" + strings.Repeat("0", 400)}, limit},
		{[]string{"299.9999999999999999999999"}, limit},
		{[]string{date(http.TimeFormat, 50*365*24*time.Hour)}, limit},
		{[]string{"Fri, 31 Dec 9999 23:59:59 GMT"}, limit},
	}
	for _, test := range tests {
		if got := retryAfter(test.values, now, limit); got != test.want {
			t.Errorf("%.40q: pause %s, want %s", test.values, got, test.want)
		}
	}
}
