package emulator

import (
	"maps"
	"net/http"
	"time"
)

// Header values are shared between answers: nobody may change them.
var jsonType = []string{"application/json"}

// reply records a call and sends its answer.
func (s *Server) reply(w http.ResponseWriter, c *call, a answer) {
	c.settle(a)
	s.record(c, a.status, 0)
	s.write(w, c, a)
}

// settle gives a call its outcome, if handling it has not.
func (c *call) settle(a answer) {
	switch {
	case !a.ok() && c.outcome != Conflicting:
		c.outcome = Refused
	case c.outcome == "":
		c.outcome = Done
	}
}

// write sends an answer in its envelope.
func (s *Server) write(w http.ResponseWriter, c *call, a answer) {
	header := w.Header()
	maps.Copy(header, a.header)
	header["Content-Type"] = jsonType
	c.out = append(a.appendEnvelope(c.out[:0], c.requestID(header), time.Since(c.started)), '\n') // for people with curl
	w.WriteHeader(a.status)
	_, _ = w.Write(c.out) // a client that has gone needs no answer
}

// requestID makes the id of this request, and puts it into the header if that
// is wanted.
func (c *call) requestID(header http.Header) string {
	id := newRequestID(c.now)
	if c.settings.RequestIDHeader == on {
		header["X-Infrai-Request-Id"] = []string{id}
	}
	return id
}
