package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/relay/admin"
)

func askStatus(t *testing.T, url string) admin.Status {
	t.Helper()
	code, _, body := request(t, http.MethodGet, url+"/status", "")
	var s admin.Status
	if err := json.Unmarshal([]byte(body), &s); err != nil || code != http.StatusOK {
		t.Fatalf("%d %v: %s", code, err, body)
	}
	return s
}

// However many ask at once, and again soon after, there is one look at the
// database.
func TestServer_Status_LooksOnceForAll(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	answer := make(chan struct{})
	url := serveLooking(t, idle, func(context.Context) (*admin.Look, error) {
		looks.Add(1)
		<-answer
		return &admin.Look{Report: &status.Report{Deferred: status.Count{Count: 7}}}, nil
	})
	began := time.Now()
	var asking sync.WaitGroup
	for range 10 {
		asking.Go(func() {
			s := askStatus(t, url)
			if s.Version != 1 || !s.Ready.OK || !s.Live.OK || s.Relay.Phase != "active" || s.Database.Report.Deferred.Count != 7 || s.Database.Error != "" {
				t.Errorf("the status is %+v", s)
			}
		})
	}
	close(answer)
	asking.Wait()
	most := 1 + int64(time.Since(began)/(3*time.Second)) // an answer is given again for as long
	if n := looks.Load(); n < 1 || n > most {
		t.Errorf("%d looks for 10 questions, want at most %d", n, most)
	}
}

// Who wants to know of the relay alone waits for no database.
func TestServer_Status_DatabaseOff(t *testing.T) {
	t.Parallel()
	url := serveLooking(t, idle, func(context.Context) (*admin.Look, error) {
		t.Error("the database was asked")
		return nil, nil
	})
	code, _, body := request(t, http.MethodGet, url+"/status?database=off", "")
	var s admin.Status
	if err := json.Unmarshal([]byte(body), &s); err != nil || code != http.StatusOK || s.Relay.Phase != "active" || s.Database.Report != nil || s.Database.Error == "" {
		t.Errorf("%d, %v: %s", code, err, body)
	}
}

// A database that does not answer takes nothing but its part of the answer.
func TestServer_Status_WithoutDatabase(t *testing.T) {
	t.Parallel()
	url := serveLooking(t, idle, func(context.Context) (*admin.Look, error) {
		return new(admin.Look), errors.New("connection\nrefused")
	})
	if s := askStatus(t, url); s.Database.Report != nil || s.Database.Error != "connection refused" || s.Relay.Phase != "active" {
		t.Errorf("the status is %+v", s)
	}
}

// The end of the server ends a look that hangs.
func TestServer_Status_EndsWithTheServer(t *testing.T) {
	t.Parallel()
	looking := make(chan struct{})
	url := serveLooking(t, idle, func(ctx context.Context) (*admin.Look, error) {
		close(looking)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/status", http.NoBody)
		if err == nil {
			if response, err := http.DefaultClient.Do(r); err == nil {
				response.Body.Close()
			}
		}
	}()
	<-looking
	cancel()
	<-gone
}
