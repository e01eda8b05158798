package verify_test

import (
	"errors"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/verify"
)

// A quiet check ends between two batches as soon as nobody wants it any more.
func TestRun_GoesOnWhileItMay(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.messages(50)
	asked := 0
	r.cfg.Batch, r.cfg.Rest = 10, 1
	r.cfg.GoOn = func() bool { asked++; return asked < 3 }
	if _, err := verify.Run(t.Context(), r.conn, r.cfg); !errors.Is(err, verify.ErrStopped) || asked != 3 {
		t.Errorf("after %d questions: %v", asked, err)
	}
}

// The check that a relay makes finds what nobody will send, on the real tables.
func TestRun_QuietlyFindsWhatIsUnaccounted(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.messages(20)
	r.exec(`delete from outbox.dispatched where message_id = 7`)
	r.stream()
	r.cfg.Since, r.cfg.Batch, r.cfg.Rest = 26*time.Hour, 5, 19
	report := r.run()
	if report.Unaccounted != 1 || report.Messages != 20 || report.Batches < 4 || len(report.Examples) != 1 || report.Examples[0].MessageID != 7 {
		t.Errorf("got %+v", report)
	}
}
