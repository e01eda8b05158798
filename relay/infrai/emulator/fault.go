package emulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Fault is a scripted misbehaviour: which calls it meets, how often, and what
// it does to them. An empty condition is no condition; all that are set must
// hold. The queue handles a call that is met if Store says so, and where the
// answer is its own or says yes; else it never sees it.
type Fault struct {
	// ID is the fault's number, given when it is added.
	ID uint64 `json:"id"`

	// Route is the call's name, such as queue.publish.
	Route string `json:"route,omitempty"`
	// Key is the whole idempotency key, KeyPrefix its beginning.
	Key       string `json:"key,omitempty"`
	KeyPrefix string `json:"key_prefix,omitempty"`
	// Queue is the queue that the call names.
	Queue string `json:"queue,omitempty"`

	// Skip lets that many matching calls pass first.
	Skip int `json:"skip,omitempty"`
	// Every meets each n-th of the others; 0 and 1 meet all.
	Every int `json:"every,omitempty"`
	// Probability meets that share of them, between 0 and 1; 0 meets all. Seed
	// makes the choice repeatable.
	Probability float64 `json:"probability,omitempty"`
	Seed        uint64  `json:"seed,omitempty"`
	// Count is how often it happens before the fault is spent; 0 is for ever.
	Count int `json:"count,omitempty"`

	// Store lets the queue handle the call although it will not be told: a
	// stored message with a lost answer.
	Store bool `json:"store,omitempty"`
	// Delay holds the answer. Alone it makes a slow queue.
	Delay time.Duration `json:"delay,omitempty"`
	// Hang never answers; the call ends when the client or the emulator goes.
	Hang bool `json:"hang,omitempty"`
	// Cut ends the connection instead of answering.
	Cut Cut `json:"cut,omitempty"`

	// Status of the answer; 0 means the queue's own answer, or if Body, Code or
	// Message ask for another, 200 for no_message_id and refusal, 400 for echo
	// and 500 for the others.
	Status int `json:"status,omitempty"`
	// Header is sent with the answer. Several values are several lines.
	Header http.Header `json:"header,omitempty"`
	// RetryAfter is sent as Retry-After: any text as it is, or a date in one of
	// HTTP's three forms, from now: "imf+4s", "rfc850+4s", "asctime-10s".
	RetryAfter string `json:"retry_after,omitempty"`
	// Body is what the answer holds.
	Body Body `json:"body,omitempty"`
	// Code and Message stand in an envelope that says no.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// Size pads an HTML page to this many bytes.
	Size int `json:"size,omitempty"`
	// Drip is the pause between the bytes of a slow body; 0 means 1s.
	Drip time.Duration `json:"drip,omitempty"`

	// Hits is how often it happened.
	Hits int `json:"hits"`
}

// Cut says how a connection ends.
type Cut string

// The cuts. Over HTTP/2 the stream ends instead, with RST_STREAM.
const (
	// CutClose ends it with nothing sent.
	CutClose Cut = "close"
	// CutReset does the same with a TCP reset.
	CutReset Cut = "reset"
	// CutHalf sends a part of the status line first.
	CutHalf Cut = "half"
)

// Body is what an answer holds.
type Body string

// The bodies.
const (
	// BodyEnvelope is an envelope, with Code and Message; the default.
	BodyEnvelope Body = "envelope"
	// BodyHTML is a page as proxies make them.
	BodyHTML Body = "html"
	// BodyEmpty is nothing.
	BodyEmpty Body = "empty"
	// BodyTruncated is an envelope that ends in the middle, with the connection.
	BodyTruncated Body = "truncated"
	// BodyBroken is half an envelope sent as if it were whole.
	BodyBroken Body = "broken"
	// BodySlow is an envelope that comes byte by byte.
	BodySlow Body = "slow"
	// BodyNoMessageID is a success that does not say the message's id.
	BodyNoMessageID Body = "no_message_id"
	// BodyRefusal is an envelope with ok:false, under any status.
	BodyRefusal Body = "refusal"
	// BodyEcho is a refusal that repeats the request's body in its message.
	BodyEcho Body = "echo"
)

var (
	cuts   = []Cut{"", CutClose, CutReset, CutHalf}
	bodies = []Body{
		"", BodyEnvelope, BodyHTML, BodyEmpty, BodyTruncated, BodyBroken, BodySlow, BodyNoMessageID, BodyRefusal, BodyEcho,
	}
)

// Validate reports everything that is wrong with a fault.
func (f *Fault) Validate() error {
	var errs []error
	if f.Route != "" && f.Route != discoveryRoute.id && !slices.ContainsFunc(routes, func(r *route) bool { return r.id == f.Route }) {
		errs = append(errs, fmt.Errorf("no route %q", f.Route))
	}
	if !slices.Contains(cuts, f.Cut) {
		errs = append(errs, fmt.Errorf("cut is %q, want close, reset or half", f.Cut))
	}
	if !slices.Contains(bodies, f.Body) {
		errs = append(errs, fmt.Errorf("body is %q, want one of %s", f.Body, joinBodies()))
	}
	if f.Status != 0 && (f.Status < 200 || f.Status > 599) {
		errs = append(errs, fmt.Errorf("status is %d, want 200 to 599", f.Status))
	}
	if f.Probability < 0 || f.Probability > 1 {
		errs = append(errs, fmt.Errorf("probability is %g, want 0 to 1", f.Probability))
	}
	if min(f.Skip, f.Every, f.Count, f.Size) < 0 || min(f.Delay, f.Drip) < 0 {
		errs = append(errs, errors.New("skip, every, count, size, delay and drip are never negative"))
	}
	return errors.Join(errs...)
}

func joinBodies() string {
	names := make([]string, 0, len(bodies)-1)
	for _, b := range bodies[1:] {
		names = append(names, string(b))
	}
	return strings.Join(names, ", ")
}

// MarshalJSON writes durations as text, such as 1.5s.
func (f Fault) MarshalJSON() ([]byte, error) {
	type plain Fault
	return json.Marshal(struct {
		plain
		Delay string `json:"delay,omitempty"`
		Drip  string `json:"drip,omitempty"`
	}{plain(f), durationText(f.Delay), durationText(f.Drip)})
}

func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// UnmarshalJSON reads what MarshalJSON writes, and refuses unknown fields.
func (f *Fault) UnmarshalJSON(b []byte) error {
	type plain Fault
	texts := struct {
		*plain
		Delay string `json:"delay"`
		Drip  string `json:"drip"`
	}{plain: (*plain)(f)}
	if err := strictUnmarshal(b, &texts); err != nil {
		return err
	}
	var errs [2]error
	f.Delay, errs[0] = parseDuration(texts.Delay)
	f.Drip, errs[1] = parseDuration(texts.Drip)
	return errors.Join(errs[:]...)
}

func parseDuration(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	return time.ParseDuration(text)
}

// faults are the scripted faults in the order in which they were added.
type faults struct {
	any  atomic.Bool // whether there is one: asked at every call
	mu   sync.Mutex
	list []*scripted
	last uint64
}

// scripted is a fault and how far it has come.
type scripted struct {
	Fault
	matched int
	dice    *rand.Rand
}

// AddFault adds a fault and returns its number.
func (s *Server) AddFault(f Fault) (uint64, error) {
	if err := f.Validate(); err != nil {
		return 0, err
	}
	l := &s.faults
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	f.ID, f.Hits = l.last, 0
	l.list = append(l.list, &scripted{Fault: f, dice: rand.New(rand.NewPCG(f.Seed, 0))})
	l.any.Store(true)
	return f.ID, nil
}

// RemoveFault removes one fault and reports whether it was there.
func (s *Server) RemoveFault(id uint64) bool {
	return s.faults.remove(func(f *scripted) bool { return f.ID == id }) > 0
}

// ClearFaults removes all faults.
func (s *Server) ClearFaults() {
	s.faults.remove(func(*scripted) bool { return true })
}

// Faults returns the faults and how often each happened.
func (s *Server) Faults() []Fault {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	list := make([]Fault, len(s.faults.list))
	for i, f := range s.faults.list {
		list[i] = f.Fault
	}
	return list
}

func (l *faults) remove(which func(*scripted) bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.list)
	l.list = slices.DeleteFunc(l.list, which)
	l.any.Store(len(l.list) > 0)
	return before - len(l.list)
}

// match returns the first fault that happens to this call, or nil.
func (l *faults) match(c *call) *Fault {
	if !l.any.Load() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.list {
		if f.meets(c) && f.happens() {
			f.Hits++
			hit := f.Fault
			return &hit
		}
	}
	return nil
}

func (f *scripted) meets(c *call) bool {
	return (f.Route == "" || c.route != nil && c.route.id == f.Route) &&
		(f.Key == "" || f.Key == c.key) &&
		strings.HasPrefix(c.key, f.KeyPrefix) &&
		(f.Queue == "" || f.Queue == c.queue)
}

// happens counts a matching call and reports whether it is one of the chosen.
func (f *scripted) happens() bool {
	if f.Count > 0 && f.Hits >= f.Count {
		return false
	}
	f.matched++
	n := f.matched - f.Skip
	if n <= 0 || f.Every > 1 && n%f.Every != 0 {
		return false
	}
	return f.Probability == 0 || f.dice.Float64() < f.Probability
}
