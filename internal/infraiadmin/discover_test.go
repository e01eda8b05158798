package infraiadmin_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/infraiadmin"
	"github.com/outbox-relay/outbox-relay/internal/secret"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// Every call that outbox-relay makes of a queue fits the emulator's description,
// in both forms, and without a key.
func TestCalls_FitTheirDescription(t *testing.T) {
	t.Parallel()
	for _, settings := range []emulator.Settings{{}, {DiscoveryParams: "fields"}, {UnknownFields: "reject"}} {
		web := httptest.NewServer(emulator.New(emulator.Config{APIKey: apiKey, Settings: settings}))
		t.Cleanup(web.Close)
		cfg := configFor(web.URL)
		cfg.APIKey = secret.Text{}
		c := newClient(t, cfg)
		index, err := c.Index(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		compared := 0
		for _, listed := range index {
			call, used := infraiadmin.CallOf(listed.ID)
			if !used {
				continue
			}
			compared++
			described, err := c.Capability(t.Context(), listed.ID)
			if err != nil {
				t.Fatal(err)
			}
			if doubts := append(described.Doubts(call), listed.PlaceDoubts(call)...); len(doubts) > 0 {
				t.Errorf("%s: %q", listed.ID, doubts)
			}
		}
		if want := len(infraiadmin.Calls()); compared != want {
			t.Errorf("%d calls were compared, want %d", compared, want)
		}
	}
}

func TestCapability_Answers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler http.Handler
		want    infraiadmin.Problem // 0 for a description
	}{
		"plain":            {answering(200, `{"id":"queue.get"}`), 0},
		"in an envelope":   {answering(200, `{"ok":true,"data":{"id":"queue.get"}}`), 0},
		"refused with 200": {answering(200, `{"ok":false,"error":{"code":"CAPABILITY_NOT_FOUND"}}`), infraiadmin.Refused},
		"unknown":          {emulator.New(emulator.Config{}), infraiadmin.NotFound},
		"page":             {answering(200, `<html>`, "Content-Type", "text/html"), infraiadmin.Unreadable},
		"empty envelope":   {answering(200, `{"ok":true}`), infraiadmin.Unreadable},
		"too many":         {answering(429, ``), infraiadmin.TooMany},
	} {
		_, err := serve(t, c.handler).Capability(t.Context(), "queue.purge")
		failure, _ := errors.AsType[*infraiadmin.Error](err)
		switch {
		case c.want == 0 && err != nil, c.want != 0 && (failure == nil || failure.Problem != c.want):
			t.Errorf("%s: %v", name, err)
		}
	}
}
