package emulator

import (
	"net/http"
	"slices"
	"time"
)

var visibilitySchema = `{"type":"integer","minimum":1,"maximum":43200}`

var consumeFields = []field{
	{name: "queue", required: true, schema: queueSchema},
	{name: "max_messages", schema: `{"type":"integer","minimum":1,"maximum":100}`},
	{name: "visibility_timeout", schema: visibilitySchema},
	{name: "idempotency_key", schema: keySchema},
}

var ackFields = []field{
	{name: "queue", required: true, schema: queueSchema},
	{name: "message_id", required: true, schema: `{"type":"string"}`},
	{name: "idempotency_key", schema: keySchema},
}

var nackFields = append(slices.Clip(ackFields), field{name: "delay_seconds", schema: delaySchema})

// consume leases messages.
func (s *Server) consume(c *call) answer {
	q, refusal := s.existing(c)
	if !refusal.ok() {
		return refusal
	}
	most, refusal := c.integer("max_messages", 1, 1, 1<<31-1)
	if !refusal.ok() {
		return refusal
	}
	lease, refusal := c.integer("visibility_timeout", int(q.visibility/time.Second), 1, 1<<31-1)
	if !refusal.ok() {
		return refusal
	}
	leasedUntil := c.now.Add(time.Duration(min(lease, maxVisibility)) * time.Second)
	messages := q.next(min(most, maxConsumed), c.settings.FIFODelay == "block")
	for _, m := range messages {
		m.receives++
		q.wait(m, leased, leasedUntil)
	}
	s.counters.consumed.Add(int64(len(messages)))
	return c.success(appendConsumed(nil, c.settings, messages))
}

// appendConsumed appends the list of a consume answer.
func appendConsumed(b []byte, settings *Settings, messages []*message) []byte {
	if settings.ConsumeKey != "array" {
		b = append(b, `{"`...)
		b = append(b, settings.ConsumeKey...)
		b = append(b, `":`...)
	}
	b = append(b, '[')
	for i, m := range messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendMessage(b, m, settings.ConsumeExtras == on)
	}
	b = append(b, ']')
	if settings.ConsumeKey != "array" {
		b = append(b, '}')
	}
	return b
}

func appendMessage(b []byte, m *message, extras bool) []byte {
	b = append(b, `{"message_id":"`...)
	b = append(b, m.id...)
	b = append(b, `","payload":`...)
	b = append(b, m.payload...)
	if extras {
		b = append(b, `,"receive_count":`...)
		b = appendInt(b, m.receives)
		b = append(b, `,"published_at":`...)
		b = appendTime(b, m.publishedAt)
		b = append(b, `,"visible_until":`...)
		b = appendTime(b, m.dueAt)
	}
	return append(b, '}')
}

// ack deletes a message.
func (s *Server) ack(c *call) answer {
	q, m, refusal := s.handled(c)
	if !refusal.ok() {
		return refusal
	}
	q.remove(m)
	s.counters.acked.Add(1)
	return c.success([]byte(`{"acknowledged":true}`))
}

// nack gives a message back, at once or after a delay.
func (s *Server) nack(c *call) answer {
	q, m, refusal := s.handled(c)
	if !refusal.ok() {
		return refusal
	}
	delay, refusal := c.seconds("delay_seconds", maxDelaySeconds)
	if !refusal.ok() {
		return refusal
	}
	q.take(m)
	s.counters.nacked.Add(1)
	s.failed(q, m, delay, c.now)
	return c.success([]byte(`{"acknowledged":false}`))
}

// handled finds the message that a consumer has handled.
func (s *Server) handled(c *call) (*queue, *message, answer) {
	q, refusal := s.existing(c)
	if !refusal.ok() {
		return nil, nil, refusal
	}
	id, _ := c.text("message_id")
	m := q.messages[id]
	if m == nil || m.place != leased && c.settings.LateAck == "404" {
		return nil, nil, refuse(http.StatusNotFound, codeMessageNotFound, "no such message is leased from this queue")
	}
	return q, m, answer{}
}

// existing returns the queue that the call names, with everything done that was
// due by now.
func (s *Server) existing(c *call) (*queue, answer) {
	q := s.queues[c.queue]
	if q == nil {
		return nil, queueNotFound(c.queue)
	}
	s.settle(q, c.now)
	return q, answer{}
}

// settle ends delays, leases and lives whose time has come.
func (s *Server) settle(q *queue, now time.Time) {
	s.counters.expired.Add(int64(q.expire(now)))
	for m := q.due(now); m != nil; m = q.due(now) {
		if m.place == leased && s.settings.Load().LeaseExpiryCounts == on {
			s.failed(q, m, 0, now)
			continue
		}
		q.offer(m)
	}
}

// failed gives a message that is nowhere another try, or makes it a dead letter.
func (s *Server) failed(q *queue, m *message, delay time.Duration, now time.Time) {
	m.failures++
	letters := s.queues[q.deadLetters]
	switch {
	case letters != nil && m.failures > q.maxRetries:
		delete(q.messages, m.id)
		letters.add(m, 0, now)
		s.counters.deadLettered.Add(1)
	case delay > 0:
		m.retrying = true
		q.wait(m, delayed, now.Add(delay))
	default:
		q.offer(m)
	}
}
