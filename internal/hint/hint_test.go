package hint_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/hint"
)

type missing struct{}

func (missing) Error() string { return "slot is missing" }

func (missing) Hint() string { return "make one" }

func TestOf(t *testing.T) {
	t.Parallel()
	for want, errs := range map[string][]error{
		"":         {nil, errors.New("connection reset")},
		"make one": {missing{}, fmt.Errorf("open: %w", missing{}), errors.Join(errors.New("connection reset"), missing{})},
	} {
		for _, err := range errs {
			if got := hint.Of(err); got != want {
				t.Errorf("%v: got %q, want %q", err, got, want)
			}
		}
	}
}
