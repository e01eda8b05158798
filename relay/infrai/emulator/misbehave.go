package emulator

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"
	"time"
)

// misbehave does to a call what a fault says. The journal has the call before
// the answer goes out, or fails to.
func (s *Server) misbehave(w http.ResponseWriter, c *call, f *Fault, refusal answer) {
	a := f.answer(c)
	c.outcome = Failed
	if f.stores() {
		c.outcome = ""
		own := s.handle(c, refusal)
		c.settle(own)
		if f.own() {
			a = own
		}
	}
	if f.Hang || f.Cut != "" {
		a.status = 0
	}
	s.record(c, a.status, f.ID)
	s.pause(c, f.Delay)
	switch {
	case f.Hang:
		s.pause(c, forever)
	case f.Cut != "":
		cut(w, f.Cut)
	default:
		s.writeFault(w, c, f, a)
	}
}

const forever = 1000 * time.Hour

// pause waits for d, for the client to go, or for the emulator to close.
func (s *Server) pause(c *call, d time.Duration) {
	if d == 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.request.Context().Done():
		panic(http.ErrAbortHandler)
	case <-s.closing.Done():
		panic(http.ErrAbortHandler)
	}
}

// own reports whether the answer is the queue's own, whole or spoilt.
func (f *Fault) own() bool {
	if f.Status != 0 || f.Code != "" || f.Message != "" {
		return false
	}
	switch f.Body {
	case "", BodyEnvelope, BodyTruncated, BodyBroken, BodySlow:
		return true
	}
	return false
}

// stores reports whether the queue handles the call. It does so without being
// told where the answer says yes: a queue that says yes has the message.
func (f *Fault) stores() bool {
	return f.Store || f.Cut == "" && !f.Hang && (f.own() || f.saysYes())
}

func (f *Fault) saysYes() bool {
	switch f.Body {
	case BodyRefusal, BodyEcho, BodyHTML, BodyEmpty:
		return false
	}
	return f.status() < http.StatusMultipleChoices
}

func (f *Fault) status() int {
	switch {
	case f.Status != 0:
		return f.Status
	case f.Body == BodyNoMessageID || f.Body == BodyRefusal:
		return http.StatusOK
	case f.Body == BodyEcho:
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// answer is what the fault says by itself.
func (f *Fault) answer(c *call) answer {
	if f.saysYes() {
		return answer{status: f.status(), data: []byte(`{}`)}
	}
	a := refuse(f.status(), firstNonEmpty(f.Code, "SCRIPTED_FAULT"), firstNonEmpty(f.Message, "this answer was scripted"))
	if f.Body == BodyEcho {
		a.message = "cannot take " + string(c.body)
	}
	return a
}

// writeFault sends an answer in the form that the fault asks for.
func (s *Server) writeFault(w http.ResponseWriter, c *call, f *Fault, a answer) {
	header := w.Header()
	maps.Copy(header, a.header)
	maps.Copy(header, f.Header)
	if f.RetryAfter != "" {
		header.Set("Retry-After", retryAfter(f.RetryAfter, time.Now()))
	}
	header["Content-Type"] = jsonType
	body := bytes.Clone(a.appendEnvelope(nil, c.requestID(header), time.Since(c.started)))
	switch f.Body {
	case BodyHTML:
		header.Set("Content-Type", "text/html; charset=utf-8")
		body = page(a.status, f.Size)
	case BodyEmpty:
		header.Del("Content-Type")
		body = nil
	case BodyBroken:
		body = body[:len(body)/2]
	case BodySlow:
		s.drip(w, c, a.status, body, f.Drip)
		return
	case BodyTruncated:
		header.Set("Content-Length", fmt.Sprint(len(body)))
		w.WriteHeader(a.status)
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(body)
}

// drip sends a body byte by byte.
func (s *Server) drip(w http.ResponseWriter, c *call, status int, body []byte, pause time.Duration) {
	if pause == 0 {
		pause = time.Second
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(status)
	flusher := http.NewResponseController(w)
	for i := range body {
		if w.Write(body[i : i+1]); flusher.Flush() != nil {
			return
		}
		s.pause(c, pause)
	}
}

// page is an error page as a proxy makes it, of at least size bytes.
func page(status, size int) []byte {
	text := fmt.Sprintf("<html><head><title>%d %s</title></head><body><h1>%[1]d %[2]s</h1>\n", status, http.StatusText(status))
	const filler = "<!-- filler so that a friendly page is shown -->\n"
	if missing := size - len(text); missing > 0 {
		text += strings.Repeat(filler, missing/len(filler)+1)
	}
	return []byte(text + "</body></html>\n")
}

// cut ends the connection. What a handler can do depends on the protocol: over
// HTTP/2 the stream is reset.
func cut(w http.ResponseWriter, how Cut) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	switch tcp, isTCP := conn.(*net.TCPConn); {
	case how == CutHalf:
		_, _ = conn.Write([]byte("HTTP/1.1 20"))
	case how == CutReset && isTCP:
		_ = tcp.SetLinger(0) // close sends a reset instead of an orderly end
	}
	_ = conn.Close()
}

// retryAfter makes the header's value.
func retryAfter(text string, now time.Time) string {
	layouts := map[string]string{
		"imf":     http.TimeFormat,
		"rfc850":  "Monday, 02-Jan-06 15:04:05 GMT",
		"asctime": time.ANSIC,
	}
	at := strings.IndexAny(text, "+-")
	if at < 0 {
		return text
	}
	layout, known := layouts[text[:at]]
	d, err := time.ParseDuration(text[at:])
	if !known || err != nil {
		return text
	}
	return now.Add(d).UTC().Format(layout)
}

func firstNonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
