package emulator

import (
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// fifoWindow is how long a FIFO queue drops a second message with one key.
const fifoWindow = 5 * time.Minute

// limitKB is the size limit of a message; [Settings.KB] and SizeBasis say of what.
const limitKB = 256

var (
	queueSchema    = `{"type":"string","pattern":"^[a-z0-9][a-z0-9_-]{0,62}$"}`
	keySchema      = `{"type":"string","maxLength":128}`
	delaySchema    = `{"type":"number","minimum":0,"maximum":604800}`
	prioritySchema = `{"type":"integer","minimum":0,"maximum":9}`
	payloadSchema  = `{"type":"object"}`
)

var publishFields = []field{
	{name: "queue", required: true, schema: queueSchema},
	{name: "payload", required: true, schema: payloadSchema},
	{name: "delay_seconds", schema: delaySchema},
	{name: "priority", schema: prioritySchema},
	{name: "idempotency_key", schema: keySchema},
	{name: "message_group_id", schema: `{"type":"string"}`, invented: true},
}

// publish puts one message into a queue.
func (s *Server) publish(c *call) answer {
	q, refusal := s.target(c)
	if !refusal.ok() {
		return refusal
	}
	m := message{payload: c.field("payload")}
	if refusal = c.checkPayload(m.payload, len(c.body)); !refusal.ok() {
		return refusal
	}
	delay, refusal := c.seconds("delay_seconds", maxDelaySeconds)
	if !refusal.ok() {
		return refusal
	}
	if m.priority, refusal = c.integer("priority", 0, 0, maxPriority); !refusal.ok() {
		return refusal
	}
	if c.settings.FIFOScope == "group" {
		m.group, _ = c.text("message_group_id")
	}
	if q.fifo && c.key != "" && !s.cfg.Discard {
		return s.publishFIFO(c, q, m, delay)
	}
	return publishedAnswer(c, s.accept(c, q, m, delay))
}

// publishFIFO drops a message whose key the queue took within its window, and
// says the first one's id.
func (s *Server) publishFIFO(c *call, q *queue, m message, delay time.Duration) answer {
	if first, found := q.accepted.find(c.key, fifoWindow, c.now); found {
		c.outcome = Deduplicated
		return first.answer
	}
	a := publishedAnswer(c, s.accept(c, q, m, delay))
	q.accepted.add(c.key, remembered{at: c.now, answer: a}, s.cfg.MaxKeys)
	return a
}

// target returns the queue that the body names.
func (s *Server) target(c *call) (*queue, answer) {
	if q := s.queues[c.queue]; q != nil {
		return q, answer{}
	}
	if c.settings.AutoCreate == on && validQueueName(c.queue) {
		q := newQueue(s.defaultSettings(c.queue), c.now)
		s.queues[c.queue] = q
		return q, answer{}
	}
	return nil, queueNotFound(c.queue)
}

func queueNotFound(name string) answer {
	return refuse(http.StatusNotFound, codeQueueNotFound, fmt.Sprintf("queue %q does not exist", clip([]byte(name))))
}

// checkPayload refuses what is not a message: another type, or too large.
func (c *call) checkPayload(payload jsontext.Value, body int) answer {
	if payload.Kind() != '{' && c.settings.Payload == "object" {
		return invalid("payload is not an object")
	}
	kb, size := 1024, len(payload)
	if c.settings.KB == "1000" {
		kb = 1000
	}
	if c.settings.SizeBasis == "body" {
		size = body
	}
	if size <= limitKB*kb {
		return answer{}
	}
	status := http.StatusRequestEntityTooLarge
	if c.settings.OversizeStatus == "400" {
		status = http.StatusBadRequest
	}
	return refuse(status, codeTooLarge, fmt.Sprintf("the message has %d bytes, at most %d are taken", size, limitKB*kb))
}

// accept gives a message its id and puts it into the queue.
func (s *Server) accept(c *call, q *queue, m message, delay time.Duration) *message {
	s.sequence++
	m.sequence, m.id = s.sequence, messageID(s.run, s.sequence)
	m.key, m.origin, m.publishedAt = c.key, q.name, c.now
	if !q.enablePriority || q.fifo {
		m.priority = 0
	}
	c.outcome = Accepted
	s.counters.accepted.Add(1)
	kept := &m
	if s.cfg.Discard {
		kept.payload = nil
		c.accepted = append(c.accepted, kept)
		return kept
	}
	kept.payload = append([]byte(nil), m.payload...)
	c.accepted = append(c.accepted, kept)
	q.add(kept, delay, c.now)
	return kept
}

func publishedAnswer(c *call, m *message) answer {
	data := make([]byte, 0, 64)
	data = append(data, `{"message_id":"`...)
	data = append(data, m.id...)
	return c.success(append(data, `"}`...))
}

// success is an answer that says yes.
func (c *call) success(data []byte) answer {
	status := http.StatusOK
	switch c.settings.SuccessStatus {
	case "201":
		status = http.StatusCreated
	case "202":
		status = http.StatusAccepted
	}
	return answer{status: status, data: data}
}
