package emulator

import (
	"net/http"
	"strings"
	"time"
)

// keyWindow is how long the platform remembers a key.
const keyWindow = 24 * time.Hour

// handle answers a call as the queue does. refusal is what reading it found.
func (s *Server) handle(c *call, refusal answer) answer {
	switch {
	case c.route == nil:
		return refuse(http.StatusNotFound, codeRouteNotFound, "no such route")
	case c.request.Method != c.route.method:
		return refuse(http.StatusMethodNotAllowed, codeWrongMethod, "this route takes "+c.route.method)
	case !c.route.open && !s.authorized(c):
		return refuse(http.StatusUnauthorized, codeUnauthorized, "the API key is missing or not known")
	case c.route.id == "queue.publish_batch" && c.settings.Batch == off:
		return refuse(http.StatusNotFound, codeRouteNotFound, "no such route")
	}
	if !s.withinRate(c) {
		a := refuse(http.StatusTooManyRequests, codeRateLimited, "too many requests")
		a.header = http.Header{"Retry-After": {"1"}}
		return a
	}
	if !refusal.ok() {
		return refusal
	}
	if refusal = s.checkFields(c); !refusal.ok() {
		return refusal
	}
	return s.once(c)
}

func (s *Server) authorized(c *call) bool {
	key, bearer := strings.CutPrefix(c.request.Header.Get("Authorization"), "Bearer ")
	return bearer && key != "" && (s.cfg.APIKey == "" || key == s.cfg.APIKey)
}

func (s *Server) withinRate(c *call) bool {
	return c.settings.RateLimit == 0 || s.limiter.Load().AllowN(c.now, 1)
}

// once serves a call, or repeats the answer that its key had before.
func (s *Server) once(c *call) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.remembers(c) {
		return c.route.serve(s, c)
	}
	ring := s.keys[c.route]
	if r, found := ring.find(c.key, keyWindow, c.now); found {
		return s.again(c, r)
	}
	a := c.route.serve(s, c)
	if a.ok() || c.settings.RememberRefusals == on && lasting(a.status) {
		ring.add(c.key, remembered{digest: c.digest, at: c.now, answer: a}, s.cfg.MaxKeys)
	}
	return a
}

// remembers reports whether the call's key counts, and derives one if asked to.
func (s *Server) remembers(c *call) bool {
	if !c.route.idempotent || c.settings.PlatformIdempotency == off || s.cfg.Discard {
		return false
	}
	if c.key == "" && c.settings.DerivedKey == on && c.route.id == "queue.publish" {
		c.key = "derived:" + string(appendDigest(nil, c.digest))
	}
	return c.key != ""
}

// again answers a key that is known.
func (s *Server) again(c *call, r remembered) answer {
	if r.digest == c.digest || c.settings.KeyConflict == "replay" {
		c.outcome = Replayed
		return r.answer
	}
	c.outcome = Conflicting
	status := http.StatusConflict
	if c.settings.KeyConflict == "422" {
		status = http.StatusUnprocessableEntity
	}
	return refuse(status, codeKeyConflict, "this idempotency key was used with another body")
}

// lasting reports whether a refusal would be the same at the next try.
func lasting(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict,
		http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

func appendDigest(b []byte, d digest) []byte {
	for _, octet := range d {
		b = appendHex(b, uint64(octet), 2)
	}
	return b
}
