package operate

import "testing"

func TestPlace_Position(t *testing.T) {
	t.Parallel()
	at := func(n int64) *int64 { return &n }
	for name, c := range map[string]struct {
		place place
		want  int64
	}{
		"first of its lane":     {place{nil, 0, 0}, -placeRoom},
		"below other lanes":     {place{nil, 0, -500}, -500 - placeRoom},
		"behind an older one":   {place{at(-placeRoom), 0, -placeRoom}, -placeRoom + placeStep},
		"in a narrow gap":       {place{at(-20), -10, -20}, -15},
		"in the last gap":       {place{at(-2), 0, -2}, -1},
		"between neighbours":    {place{at(-11), -10, -11}, -11 - placeRoom},
		"right below the relay": {place{at(-1), 0, -1}, -1 - placeRoom},
	} {
		if got := c.place.position(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
