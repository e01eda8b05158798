package emulator_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

func TestFault_Answers(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fault  emulator.Fault
		status int
		stored int
		check  func(reply) bool
	}{
		"a status": {
			emulator.Fault{Status: 503, RetryAfter: "1.5"},
			503, 0,
			func(got reply) bool {
				return got.Error.Code == "SCRIPTED_FAULT" && got.Header.Get("Retry-After") == "1.5"
			},
		},
		"its own words": {
			emulator.Fault{Status: 402, Code: "INSUFFICIENT_CREDIT", Message: "no money"},
			402, 0,
			func(got reply) bool {
				return got.Error.Code == "INSUFFICIENT_CREDIT" && got.Error.Message == "no money"
			},
		},
		"several headers of one name": {
			emulator.Fault{Status: 429, Header: http.Header{"Retry-After": {"4", "8"}, "X-More": {"x"}}},
			429, 0,
			func(got reply) bool { return len(got.Header["Retry-After"]) == 2 && got.Header.Get("X-More") == "x" },
		},
		"a redirect": {
			emulator.Fault{Status: 307, Header: http.Header{"Location": {"http://other.invalid/"}}},
			307, 0,
			func(got reply) bool { return got.Header.Get("Location") != "" },
		},
		"a page": {
			emulator.Fault{Status: 502, Body: emulator.BodyHTML, Size: 100_000},
			502, 0,
			func(got reply) bool {
				return strings.HasPrefix(got.Header.Get("Content-Type"), "text/html") && len(got.Raw) >= 100_000 && strings.HasPrefix(string(got.Raw), "<html>")
			},
		},
		"nothing": {
			emulator.Fault{Status: 500, Body: emulator.BodyEmpty},
			500, 0,
			func(got reply) bool { return len(got.Raw) == 0 },
		},
		"half an envelope": {
			emulator.Fault{Body: emulator.BodyBroken},
			200, 1,
			func(got reply) bool { return strings.HasPrefix(string(got.Raw), `{"ok":true`) && !json.Valid(got.Raw) },
		},
		"byte by byte": {
			emulator.Fault{Body: emulator.BodySlow, Drip: time.Microsecond},
			200, 1,
			func(got reply) bool { return got.OK && len(got.Data) > 2 },
		},
		"no message id": {
			emulator.Fault{Body: emulator.BodyNoMessageID},
			200, 1,
			func(got reply) bool { return got.OK && string(got.Data) == `{}` },
		},
		"a polite no": {
			emulator.Fault{Body: emulator.BodyRefusal, Code: "QUOTA"},
			200, 0,
			func(got reply) bool { return !got.OK && got.Error.Code == "QUOTA" },
		},
		"the request again": {
			emulator.Fault{Body: emulator.BodyEcho, Status: 422},
			422, 0,
			func(got reply) bool { return strings.Contains(got.Error.Message, `"name":"Example"`) },
		},
		"stored, and said otherwise": {
			emulator.Fault{Store: true, Status: 500},
			500, 1,
			func(got reply) bool { return !got.OK },
		},
		"stored, and 207": {
			emulator.Fault{Status: 207},
			207, 1,
			func(got reply) bool { return got.OK },
		},
		"slow": {
			emulator.Fault{Delay: time.Millisecond},
			200, 1,
			func(got reply) bool { return got.OK },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, emulator.Config{Queues: []string{"orders"}})
			s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			s.script(test.fault)
			got := s.post(publishPath, publish("k", `{"name":"Example"}`))
			if got.Status != test.status || !test.check(got) {
				t.Errorf("status %d, headers %v, body %.300s", got.Status, got.Header, got.Raw)
			}
			if n := len(s.Accepted("orders")); n != test.stored {
				t.Errorf("%d messages stored, want %d", n, test.stored)
			}
			entry := s.Journal().Entries(0, 0)[0]
			if entry.Status != test.status || entry.Fault != 1 || (entry.Outcome == emulator.Failed) == (test.stored == 1) {
				t.Errorf("journal %+v", entry)
			}
		})
	}
}

func TestFault_LosesAnswers(t *testing.T) {
	t.Parallel()
	isReset := func(err error) bool { return errors.Is(err, syscall.ECONNRESET) }
	isEOF := func(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
	isHalf := func(err error) bool { return strings.Contains(err.Error(), `malformed HTTP status code "20"`) }
	tests := map[string]struct {
		fault emulator.Fault
		is    func(error) bool
	}{
		"closed":    {emulator.Fault{Cut: emulator.CutClose}, isEOF},
		"reset":     {emulator.Fault{Cut: emulator.CutReset}, isReset},
		"half":      {emulator.Fault{Cut: emulator.CutHalf}, isHalf},
		"truncated": {emulator.Fault{Body: emulator.BodyTruncated}, isEOF},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, store := range []bool{true, false} {
				s := start(t, emulator.Config{Queues: []string{"orders"}})
				test.fault.Store, test.fault.Count = store, 1
				s.script(test.fault)
				if got, err := s.try(http.MethodPost, publishPath, publish("k", `{}`)); err == nil || !test.is(err) {
					t.Errorf("store %t: answer %s, error %v", store, got.Raw, err)
				}
				s.post(publishPath, publish("k", `{}`)).want(t, http.StatusOK, "")
				entries := s.Journal().Entries(0, 0)
				stored := store || test.fault.Body == emulator.BodyTruncated
				first, second := emulator.Failed, emulator.Accepted
				if stored {
					first, second = emulator.Accepted, emulator.Replayed
				}
				if len(entries) != 2 || entries[0].Outcome != first || entries[1].Outcome != second {
					t.Errorf("store %t: outcomes %v", store, entries)
				}
			}
		})
	}
}

// Over HTTP/2 a cut ends the stream, and the connection lives on.
func TestFault_CutsStreamsOfHTTP2(t *testing.T) {
	t.Parallel()
	s := emulator.New(emulator.Config{Queues: []string{"orders"}})
	web := httptest.NewUnstartedServer(s)
	web.EnableHTTP2 = true
	web.StartTLS()
	t.Cleanup(web.Close)
	r := &rig{Server: s, t: t, web: web, client: web.Client()}
	for i, cut := range []emulator.Cut{emulator.CutClose, emulator.CutReset, emulator.CutHalf} {
		r.script(emulator.Fault{Cut: cut, Count: 1})
		if got, err := r.try(http.MethodPost, publishPath, publish(fmt.Sprint(i), `{}`)); err == nil {
			t.Errorf("%s: answer %s", cut, got.Raw)
		}
	}
	r.post(publishPath, publish("k", `{}`)).want(t, http.StatusOK, "")
	for _, e := range s.Journal().Entries(0, 0) {
		if e.Proto != "HTTP/2.0" || e.Connection != s.Journal().Entries(0, 1)[0].Connection {
			t.Errorf("entry %+v, want HTTP/2 on one connection", e)
		}
	}
}

func TestFault_Meets(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fault emulator.Fault
		want  string // which of the calls fail
	}{
		"all":              {emulator.Fault{}, "0123456789"},
		"one key":          {emulator.Fault{Key: "order:3"}, "3"},
		"a key prefix":     {emulator.Fault{KeyPrefix: "order:"}, "0123456789"},
		"another prefix":   {emulator.Fault{KeyPrefix: "mail:"}, ""},
		"a queue":          {emulator.Fault{Queue: "orders"}, "0123456789"},
		"another queue":    {emulator.Fault{Queue: "mails"}, ""},
		"a route":          {emulator.Fault{Route: "queue.publish"}, "0123456789"},
		"another route":    {emulator.Fault{Route: "queue.ack"}, ""},
		"every third":      {emulator.Fault{Every: 3}, "258"},
		"after four":       {emulator.Fault{Skip: 4}, "456789"},
		"every 3rd after1": {emulator.Fault{Skip: 1, Every: 3}, "369"},
		"twice":            {emulator.Fault{Count: 2}, "01"},
		"every 2nd twice":  {emulator.Fault{Every: 2, Count: 2}, "13"},
		"all conditions":   {emulator.Fault{Key: "order:3", Queue: "mails"}, ""},
		"by chance":        {emulator.Fault{Probability: 0.5, Seed: 7}, "2345679"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, emulator.Config{Queues: []string{"orders"}})
			test.fault.Status = 500
			s.script(test.fault)
			failed := ""
			for i := range 10 {
				if got := s.post(publishPath, publish(fmt.Sprint("order:", i), `{}`)); got.Status == 500 {
					failed += fmt.Sprint(i)
				}
			}
			if failed != test.want {
				t.Errorf("failed %q, want %q", failed, test.want)
			}
			if hits := s.Faults()[0].Hits; hits != len(test.want) {
				t.Errorf("%d hits, want %d", hits, len(test.want))
			}
		})
	}
}

// The first fault that happens decides.
func TestFault_Order(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	s.script(emulator.Fault{Count: 1, Status: 500})
	s.script(emulator.Fault{Count: 2, Status: 503})
	var got []int
	for i := range 4 {
		got = append(got, s.post(publishPath, publish(fmt.Sprint(i), `{}`)).Status)
	}
	if diff := cmp.Diff([]int{500, 503, 503, 200}, got); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
}

func TestFault_DatesOfRetryAfter(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{})
	for _, form := range []string{"imf+1h", "rfc850+1h", "asctime+1h"} {
		s.script(emulator.Fault{Status: 429, RetryAfter: form, Count: 1})
		got := s.get("/v1/queue/list").Header.Get("Retry-After")
		at, err := http.ParseTime(got)
		if in := time.Until(at); err != nil || in < 50*time.Minute || in > time.Hour {
			t.Errorf("%s became %q: %v", form, got, err)
		}
	}
	for _, text := range []string{"-3", "abc", "", "imf+x", "99999999999999999999"} {
		s.script(emulator.Fault{Status: 429, RetryAfter: text, Count: 1})
		if got := s.get("/v1/queue/list").Header.Get("Retry-After"); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestFault_HangsUntilClosed(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{Queues: []string{"orders"}})
	s.script(emulator.Fault{Hang: true, Count: 1})
	s.script(emulator.Fault{Delay: time.Hour, Count: 1})
	s.script(emulator.Fault{Body: emulator.BodySlow, Drip: time.Hour, Count: 1})
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			if got, err := s.try(http.MethodPost, publishPath, publish(fmt.Sprint(i), `{}`)); err == nil {
				t.Errorf("answer %s", got.Raw)
			}
		})
	}
	s.wait(3)
	s.Close()
	wg.Wait()
}

func TestFault_Validate(t *testing.T) {
	t.Parallel()
	s := start(t, emulator.Config{})
	for _, bad := range []emulator.Fault{
		{Route: "queue.purge"},
		{Cut: "slowly"},
		{Body: "xml"},
		{Status: 99},
		{Status: 600},
		{Probability: 1.1},
		{Probability: -1},
		{Skip: -1},
		{Every: -1},
		{Count: -1},
		{Size: -1},
		{Delay: -1},
		{Drip: -1},
	} {
		if _, err := s.AddFault(bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}
