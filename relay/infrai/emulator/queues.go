package emulator

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

var createFields = []field{
	{name: "name", required: true, schema: queueSchema},
	{name: "type", schema: `{"type":"string","enum":["standard","fifo"]}`},
	{name: "dead_letter_queue", schema: queueSchema},
	{name: "max_retries", schema: `{"type":"integer","minimum":0,"maximum":1000}`},
	{name: "message_retention_days", schema: `{"type":"number","maximum":30}`},
	{name: "visibility_timeout_default", schema: visibilitySchema},
	{name: "enable_priority", schema: `{"type":"boolean"}`},
	{name: "idempotency_key", schema: keySchema},
}

const (
	day           = 24 * time.Hour
	maxMaxRetries = 1000
)

// defaultSettings are those of a queue that was created by its name alone.
func (s *Server) defaultSettings(name string) queueSettings {
	settings := s.settings.Load()
	return queueSettings{
		name:       name,
		maxRetries: settings.MaxRetries,
		retention:  time.Duration(settings.RetentionDays) * day,
		visibility: time.Duration(settings.VisibilityTimeout) * time.Second,
	}
}

// create makes a queue. A queue that exists with the same settings is answered
// like a new one, or refused; one with other settings is always refused.
func (s *Server) create(c *call) answer {
	wanted, refusal := s.wantedQueue(c)
	if !refusal.ok() {
		return refusal
	}
	present := s.queues[wanted.name]
	if present == nil {
		present = newQueue(wanted, c.now)
		s.queues[wanted.name] = present
	} else if present.queueSettings != wanted || c.settings.Recreate == "409" {
		return refuse(http.StatusConflict, codeQueueExists, fmt.Sprintf("queue %q exists", wanted.name))
	}
	return c.success(present.appendJSON(nil))
}

// wantedQueue reads what a create asks for.
func (s *Server) wantedQueue(c *call) (queueSettings, answer) {
	w := s.defaultSettings(c.queue)
	if !validQueueName(w.name) {
		return w, invalid("name is not a queue name: up to 63 of a-z, 0-9, _ and -")
	}
	switch kind, given := c.text("type"); {
	case given && kind == "fifo":
		w.fifo = true
	case c.field("type") != nil && kind != "standard":
		return w, invalid("type is neither standard nor fifo")
	}
	if w.deadLetters, _ = c.text("dead_letter_queue"); w.deadLetters == w.name {
		return w, invalid("a queue cannot be its own dead_letter_queue")
	}
	if c.field("dead_letter_queue") != nil && s.queues[w.deadLetters] == nil {
		return w, queueNotFound(w.deadLetters)
	}
	return w, s.wantedLimits(c, &w)
}

func (s *Server) wantedLimits(c *call, w *queueSettings) (refusal answer) {
	if w.maxRetries, refusal = c.integer("max_retries", w.maxRetries, 0, maxMaxRetries); !refusal.ok() {
		return refusal
	}
	lease, refusal := c.integer("visibility_timeout_default", int(w.visibility/time.Second), 1, maxVisibility)
	if !refusal.ok() {
		return refusal
	}
	w.visibility = time.Duration(lease) * time.Second
	days, refusal := c.number("message_retention_days", maxRetentionDays)
	if !refusal.ok() {
		return refusal
	}
	if days > 0 {
		w.retention = time.Duration(days * float64(day))
	}
	w.enablePriority, refusal = c.flag("enable_priority")
	return refusal
}

// appendJSON appends the description of a queue.
func (q *queue) appendJSON(b []byte) []byte {
	b = append(b, `{"name":`...)
	b = appendString(b, q.name)
	b = append(b, `,"type":"`...)
	if q.fifo {
		b = append(b, "fifo"...)
	} else {
		b = append(b, "standard"...)
	}
	b = append(b, `","dead_letter_queue":`...)
	if q.deadLetters == "" {
		b = append(b, "null"...)
	} else {
		b = appendString(b, q.deadLetters)
	}
	b = fmt.Appendf(b, `,"max_retries":%d,"message_retention_days":%g,"visibility_timeout_default":%d,"enable_priority":%t,"created_at":`,
		q.maxRetries, q.retention.Hours()/24, int(q.visibility/time.Second), q.enablePriority)
	b = appendTime(b, q.createdAt)
	return append(b, '}')
}

// get describes a queue.
func (s *Server) get(c *call) answer {
	q, refusal := s.existing(c)
	if !refusal.ok() {
		return refusal
	}
	return c.success(q.appendJSON(nil))
}

// list describes all queues by name.
func (s *Server) list(c *call) answer {
	b := []byte(`{"items":[`)
	for i, name := range slices.Sorted(maps.Keys(s.queues)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = s.queues[name].appendJSON(b)
	}
	return c.success(append(b, "]}"...))
}

// stats counts the messages of a queue.
func (s *Server) stats(c *call) answer {
	q, refusal := s.existing(c)
	if !refusal.ok() {
		return refusal
	}
	n := q.counts()
	age := 0.0
	if !n.oldestReady.IsZero() {
		age = c.now.Sub(n.oldestReady).Seconds()
	}
	b := append([]byte(`{"queue":`), appendString(nil, q.name)...)
	b = fmt.Appendf(b, `,"ready":%d,"delayed":%d,"in_flight":%d,"dead_letter":%d,"oldest_ready_age_seconds":%.3f}`,
		n.ready, n.delayed, n.inFlight, len(s.deadLettersOf(q, c.now)), age)
	return c.success(b)
}

// delete deletes a queue with its messages, unless it is the dead letter queue
// of another.
func (s *Server) delete(c *call) answer {
	q, refusal := s.existing(c)
	if !refusal.ok() {
		return refusal
	}
	for _, other := range s.queues {
		if other.deadLetters == q.name {
			return refuse(http.StatusConflict, codeQueueInUse, fmt.Sprintf("queue %q is the dead letter queue of %q", q.name, other.name))
		}
	}
	delete(s.queues, q.name)
	return c.success([]byte(`{"deleted":true}`))
}
