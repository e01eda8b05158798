package emulator

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
)

// field describes one member of a request body, for its check and for
// discovery.
type field struct {
	name     string
	required bool
	// schema is the JSON Schema of the field.
	schema string
	// invented fields are the emulator's own, and not shown by discovery.
	invented bool
}

const (
	maxDelaySeconds  = 604_800
	maxRetentionDays = 30
	maxVisibility    = 43_200
	maxConsumed      = 100
	maxBatch         = 100
	maxPriority      = 9
	maxKeyLength     = 128
)

var queueName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

func validQueueName(name string) bool { return queueName.MatchString(name) }

// checkFields refuses a body that lacks a required field, and looks at the ones
// that nobody knows.
func (s *Server) checkFields(c *call) answer {
	for _, f := range c.route.fields {
		switch value := c.field(f.name); {
		case value == nil && f.required:
			return invalid(f.name + " is missing")
		case value != nil && value.Kind() != '"' && strings.HasPrefix(f.schema, `{"type":"string"`):
			return invalid(f.name + " is not a string")
		}
	}
	for _, m := range c.members {
		if c.route.knows(m.name) {
			continue
		}
		if c.settings.UnknownFields == "reject" {
			return invalid(fmt.Sprintf("unknown field %q", m.name))
		}
		s.logOddity(c.route.id, string(m.name))
	}
	if len(c.key) > maxKeyLength {
		return invalid(fmt.Sprintf("the idempotency key has %d bytes, at most %d are taken", len(c.key), maxKeyLength))
	}
	return answer{}
}

// logOddity says once that a field is unknown.
func (s *Server) logOddity(route, field string) {
	if _, known := s.oddities.LoadOrStore(route+" "+field, true); !known {
		s.log.Warn("unknown field ignored", zap.String("route", route), zap.String("field", field))
	}
}

func (r *route) knows(name []byte) bool {
	for i := range r.fields {
		if r.fields[i].name == string(name) {
			return true
		}
	}
	return false
}

// queueField is the member that names the queue.
func (r *route) queueField() string {
	if r.id == "queue.create" {
		return "name"
	}
	return "queue"
}

func invalid(message string) answer {
	return refuse(http.StatusBadRequest, codeInvalidArgument, message)
}

// integer reads an integer member within limits; fallback if it is absent.
func (c *call) integer(name string, fallback, lowest, highest int) (int, answer) {
	raw := c.field(name)
	if raw == nil {
		return fallback, answer{}
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil || n < lowest || n > highest {
		return 0, invalid(fmt.Sprintf("%s is %s, want an integer from %d to %d", name, clip(raw), lowest, highest))
	}
	return n, answer{}
}

// number reads a number from 0 to highest; 0 if it is absent.
func (c *call) number(name string, highest int) (float64, answer) {
	raw := c.field(name)
	if raw == nil {
		return 0, answer{}
	}
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || n < 0 || n > float64(highest) {
		return 0, invalid(fmt.Sprintf("%s is %s, want a number from 0 to %d", name, clip(raw), highest))
	}
	return n, answer{}
}

// seconds reads a number of seconds from 0 to highest; 0 if it is absent.
func (c *call) seconds(name string, highest int) (time.Duration, answer) {
	n, refusal := c.number(name, highest)
	return time.Duration(n * float64(time.Second)), refusal
}

// flag reads a boolean member; false if it is absent.
func (c *call) flag(name string) (bool, answer) {
	switch raw := c.field(name); raw.Kind() {
	case 't', 'f':
		return raw.Kind() == 't', answer{}
	case 0:
		return false, answer{}
	}
	return false, invalid(name + " is not a boolean")
}

// clip shortens a value for a message.
func clip(raw []byte) []byte {
	const most = 40
	if len(raw) > most {
		return append(raw[:most:most], "..."...)
	}
	return raw
}
