package bench

import (
	"fmt"
	"testing"
)

// keep enters keys and returns the books.
func keep(t *testing.T, keys ...string) Books {
	t.Helper()
	b := newBooks()
	for _, key := range keys {
		if err := b.accept(key, nil); err != nil {
			t.Fatal(err)
		}
	}
	return b.copyAll()
}

func TestBooks_SeeWhatBreaksAPromise(t *testing.T) {
	t.Parallel()
	committed := map[string]int{"main.k0": 3, "main.f0": 2}
	tests := map[string]struct {
		keys                              []string
		breaches, repeated, lost, phantom int
	}{
		"all in order":        {keys: []string{"main.k0-0", "main.f0-0", "main.k0-1", "main.k0-2", "main.f0-1"}},
		"repeated":            {keys: []string{"main.k0-0", "main.k0-0", "main.k0-1", "main.k0-2", "main.f0-1", "main.f0-0", "main.f0-1"}, repeated: 2},
		"out of order":        {keys: []string{"main.k0-1", "main.k0-0", "main.k0-2", "main.f0-0", "main.f0-1"}, breaches: 1},
		"free of order":       {keys: []string{"main.f0-1", "main.f0-0", "main.k0-0", "main.k0-1", "main.k0-2"}},
		"repeated, not later": {keys: []string{"main.k0-0", "main.k0-1", "main.k0-0", "main.k0-2", "main.f0-0", "main.f0-1"}, repeated: 1},
		"lost at the end":     {keys: []string{"main.k0-0", "main.k0-1", "main.f0-0", "main.f0-1"}, lost: 1},
		"lost in the middle":  {keys: []string{"main.k0-0", "main.k0-2", "main.f0-0", "main.f0-1"}, breaches: 1, lost: 1},
		"lost altogether":     {keys: []string{"main.k0-0", "main.k0-1", "main.k0-2"}, lost: 2},
		"never committed":     {keys: []string{"main.k0-0", "main.k0-1", "main.k0-2", "main.f0-0", "main.f0-1", "main.f1-0"}, phantom: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			books := keep(t, test.keys...)
			lost, phantom := books.against(committed)
			got := fmt.Sprint(books.Breaches, books.Repeated, lost, phantom)
			if want := fmt.Sprint(test.breaches, test.repeated, test.lost, test.phantom); got != want {
				t.Errorf("breaches, repeated, lost and phantom are %s, want %s", got, want)
			}
		})
	}
}

func TestBooks_RefuseAnUnknownKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "main.k0", "main.k0-x"} {
		if err := newBooks().accept(key, nil); err == nil {
			t.Errorf("key %q was taken", key)
		}
	}
}
