package emulator_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

func TestJournal_TellsEveryRequest(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	// One, unless the machine is so busy that the client gives one up.
	var connections sync.Map
	s.client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			connections.Store(c.LocalAddr().String(), true)
		}
		return c, err
	}
	body := publish("k", `{"n":1}`)
	id := s.post(publishPath, body, "X-Trace", "t1").text(t, "message_id")
	s.post(publishPath, body)
	s.post(publishPath, publish("k", `{"n":2}`))
	s.post(publishPath, `{"queue":"orders"}`)
	s.consume("orders")
	s.get("/nowhere")

	entries := s.Journal().Entries(0, 0)
	var told []string
	for i, e := range entries {
		_, known := connections.Load(e.Connection)
		told = append(told, fmt.Sprintf("%d %s %s %s %d", e.Number, e.Route, e.Queue, e.Outcome, e.Status))
		if e.Number != uint64(i+1) || !known || e.Proto != "HTTP/1.1" || time.Since(e.Time).Abs() > time.Minute {
			t.Errorf("entry %+v", e)
		}
	}
	want := []string{
		"1 queue.publish orders accepted 200", "2 queue.publish orders replayed 200", "3 queue.publish orders conflicting 409",
		"4 queue.publish orders refused 400", "5 queue.consume orders done 200", "6   refused 404",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("journal (-want +got):\n%s", diff)
	}
	first := entries[0]
	digest := sha256.Sum256([]byte(body))
	if string(first.Body) != body || first.BodySHA256 != hex.EncodeToString(digest[:]) || first.Key != "k" || first.Header.Get("X-Trace") != "t1" {
		t.Errorf("first entry %+v", first)
	}
	if diff := cmp.Diff([]string{id}, first.MessageIDs); diff != "" {
		t.Errorf("message ids (-want +got):\n%s", diff)
	}
	for _, e := range entries {
		if e.Header.Get("Authorization") != "" {
			t.Errorf("entry %d tells the API key", e.Number)
		}
	}
}

func TestJournal_Modes(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}, Settings: emulator.Settings{Journal: "keys"}})
	s.post(publishPath, publish("k", `{"n":1}`)).want(t, http.StatusOK, "")
	s.set("journal", "off")
	s.post(publishPath, publish("l", `{"n":1}`)).want(t, http.StatusOK, "")
	entries := s.Journal().Entries(0, 0)
	if len(entries) != 1 || entries[0].Key != "k" || entries[0].Body != nil || entries[0].Header != nil || entries[0].BodySHA256 == "" {
		t.Errorf("journal %+v, want the key and the digest alone", entries)
	}
	if got := s.Accepted("orders"); len(got) != 1 || got[0].Payload != nil {
		t.Errorf("accepted %+v", got)
	}
}

func TestJournal_IsBounded(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}, JournalEntries: 10, JournalBytes: 3000})
	payload := `{"x":"` + strings.Repeat("x", 400) + `"}`
	for i := range 25 {
		s.post(publishPath, publish(fmt.Sprint(i), payload)).want(t, http.StatusOK, "")
	}
	entries := s.Journal().Entries(0, 0)
	if len(entries) != 10 || entries[0].Number != 16 || s.Journal().Last() != 25 {
		t.Fatalf("%d entries from %d on", len(entries), entries[0].Number)
	}
	kept := 0
	for i, e := range entries {
		if e.Body != nil {
			kept += len(e.Body)
		} else if i == len(entries)-1 {
			t.Error("the newest body is dropped")
		}
	}
	if kept == 0 || kept > 3000 {
		t.Errorf("%d bytes of bodies kept, want some, at most 3000", kept)
	}
	if got := s.Journal().Entries(20, 2); len(got) != 2 || got[0].Number != 21 {
		t.Errorf("a page behind 20: %+v", got)
	}
	if got := s.Journal().Entries(25, 0); len(got) != 0 {
		t.Errorf("behind the last: %+v", got)
	}
}

func TestJournal_Wait(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	done := make(chan error)
	go func() { done <- s.Journal().Wait(context.Background(), 0) }()
	s.post(publishPath, publish("k", `{}`))
	if err := <-done; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Journal().Wait(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that was ended: %v", err)
	}
	if err := s.Journal().Wait(ctx, 0); err != nil {
		t.Errorf("a wait for what is there: %v", err)
	}
}

// Accepted tells what came in, in order, also when it has been consumed since.
func TestServer_Accepted(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders", "mails"}})
	ids := s.put("orders", 1, 2)
	s.put("mails", 3)
	s.consume("orders")
	s.post("/v1/queue/ack", handled("orders", ids[0]))
	got := s.Accepted("orders")
	if len(got) != 2 || got[0].ID != ids[0] || got[1].ID != ids[1] || string(got[0].Payload) != `{"n":1}` || got[0].Sequence >= got[1].Sequence {
		t.Errorf("accepted %+v", got)
	}
	if got := s.Accepted(""); len(got) != 3 {
		t.Errorf("in all queues %d, want 3", len(got))
	}
}
