package emulator

import (
	"fmt"
	"time"
)

var redriveFields = []field{
	{name: "queue", schema: queueSchema},
	{name: "idempotency_key", schema: keySchema},
}

// listDeadLetters lists what a queue has given up.
func (s *Server) listDeadLetters(c *call) answer {
	letters, refusal := s.lettersOfPath(c)
	if !refusal.ok() {
		return refusal
	}
	b := []byte(`{"items":[`)
	for i, m := range letters {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"message_id":"`...)
		b = append(b, m.id...)
		b = append(b, `","payload":`...)
		b = append(b, m.payload...)
		b = append(b, `,"source":`...)
		b = appendString(b, m.origin)
		b = fmt.Appendf(b, `,"failures":%d,"dead_lettered_at":`, m.failures)
		b = append(appendTime(b, m.enteredAt), '}')
	}
	return c.success(append(b, "]}"...))
}

// redrive puts all dead letters back where they came from. They keep their
// place before later messages.
func (s *Server) redrive(c *call) answer {
	letters, refusal := s.lettersOfPath(c)
	if !refusal.ok() {
		return refusal
	}
	redriven := 0
	for _, m := range letters {
		source := s.queues[m.origin]
		if source == nil || source.deadLetters == "" {
			continue
		}
		s.queues[source.deadLetters].remove(m)
		if c.settings.RedriveResets == on {
			m.failures = 0
		}
		if c.settings.RedriveID == "new" {
			s.sequence++
			m.id = messageID(s.run, s.sequence)
		}
		source.add(m, 0, c.now)
		redriven++
	}
	s.counters.redriven.Add(int64(redriven))
	return c.success(fmt.Appendf(nil, `{"redriven":%d}`, redriven))
}

// lettersOfPath finds the dead letters that the path means: those of the queue
// that it names, or all in the dead letter queue that it names.
func (s *Server) lettersOfPath(c *call) ([]*message, answer) {
	q, refusal := s.existing(c)
	if !refusal.ok() {
		return nil, refusal
	}
	if c.settings.RedrivePath == "dlq" {
		return letters(q, func(m *message) bool { return m.origin != q.name }), answer{}
	}
	return s.deadLettersOf(q, c.now), answer{}
}

// deadLettersOf returns the dead letters of a queue, in order.
func (s *Server) deadLettersOf(q *queue, now time.Time) []*message {
	holder := s.queues[q.deadLetters]
	if holder == nil {
		return nil
	}
	s.settle(holder, now)
	return letters(holder, func(m *message) bool { return m.origin == q.name })
}

func letters(holder *queue, which func(*message) bool) []*message {
	var found []*message
	for _, m := range holder.inOrder() {
		if which(m) {
			found = append(found, m)
		}
	}
	return found
}
