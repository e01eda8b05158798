package cdc

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// SCH-13: times that Go cannot hold or print.
func TestParseTimestamp(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		time time.Time
		era  era
	}{
		"2026-01-31 12:00:00+00":          {time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC), inRange},
		"2026-01-31 12:00:00.25+00":       {time.Date(2026, 1, 31, 12, 0, 0, 250e6, time.UTC), inRange},
		"2026-01-31 12:00:00.000001+00":   {time.Date(2026, 1, 31, 12, 0, 0, 1000, time.UTC), inRange},
		"2026-01-31 12:00:00":             {time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC), inRange},
		"2026-01-31 12:00:00+02":          {time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC), inRange},
		"2026-01-31 12:00:00-03:30":       {time.Date(2026, 1, 31, 15, 30, 0, 0, time.UTC), inRange},
		"1890-01-01 00:00:00+00:53:28":    {time.Date(1889, 12, 31, 23, 6, 32, 0, time.UTC), inRange},
		"0001-01-01 00:00:00+00":          {time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), inRange},
		"9999-12-31 23:59:59.999999+00":   {latest, inRange},
		"10000-01-01 00:00:00+00":         {time.Time{}, after},
		"294276-12-31 23:59:59.999999+00": {time.Time{}, after},
		"infinity":                        {time.Time{}, after},
		"-infinity":                       {time.Time{}, before},
		"0044-03-15 12:00:00+00 BC":       {time.Time{}, before},
		"4713-01-01 00:00:00+00 BC":       {time.Time{}, before},
		"":                                {time.Time{}, garbled},
		"yesterday":                       {time.Time{}, garbled},
		"2026-01-31":                      {time.Time{}, garbled},
		"2026-13-01 00:00:00+00":          {time.Time{}, garbled},
		"2026-01-31 12:00:00.+00":         {time.Time{}, garbled},
		"2026-01-31 12:00:00.1234567+00":  {time.Time{}, garbled},
		"2026-01-31 12:00:00+00 and more": {time.Time{}, garbled},
		"31.01.2026 12:00:00 CET":         {time.Time{}, garbled},
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			got, era := parseTimestamp([]byte(text))
			if !got.Equal(want.time) || era != want.era {
				t.Errorf("%v, %v; want %v, %v", got, era, want.time, want.era)
			}
		})
	}
}

// Every time that Postgres prints is read back.
func TestParseTimestamp_ReadsWhatIsPrinted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := time.UnixMicro(rapid.Int64Range(-62135596800e6, 253402300799e6).Draw(t, "microseconds")).UTC()
		text := want.Format("2006-01-02 15:04:05.999999") + "+00"
		if got, era := parseTimestamp([]byte(text)); !got.Equal(want) || era != inRange {
			t.Fatalf("%s: %v, %v", text, got, era)
		}
	})
}
