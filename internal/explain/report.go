package explain

import (
	"encoding/json"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/paused"
	"github.com/outbox-relay/outbox-relay/internal/status"
)

// State is where a message is.
type State string

// The states.
const (
	// Waiting messages have no outcome yet.
	Waiting    State = "waiting"
	Dispatched State = "dispatched"
	Deferred   State = "deferred"
	Dead       State = "dead"
	Withdrawn  State = "withdrawn"
	// Unknown stands for a message of which nothing is known.
	Unknown State = "unknown"
)

// Report is the life of a message. What does not apply is nil or empty.
type Report struct {
	SchemaVersion int `json:"schema_version"`
	// Summary is the report in one sentence. Next says what happens next, and
	// Commands what changes that.
	Summary  string   `json:"summary"`
	Next     string   `json:"next"`
	Commands []string `json:"commands"`
	State    State    `json:"state"`
	// Fault says that the tables contradict each other.
	Fault string `json:"fault"`
	// At is the server's clock.
	At        time.Time `json:"at"`
	MessageID int64     `json:"message_id"`

	// Message is nil if its row was deleted, or never was.
	Message    *Message     `json:"message"`
	Dispatched *Acceptance  `json:"dispatched"`
	Deferred   *Deferral    `json:"deferred"`
	DeadLetter *DeadLetter  `json:"dead_letter"`
	Withdrawn  *time.Time   `json:"withdrawn_at"`
	Lane       *Lane        `json:"lane"`
	Queue      *Queue       `json:"queue"`
	Mover      status.Mover `json:"relay"`
	// Timeline is what happened, and what is to happen, by time.
	Timeline []Event `json:"timeline"`
	// Possibilities say what it can mean that a message is unknown.
	Possibilities []string `json:"possibilities,omitempty"`

	cfg Config
}

// Message is what the application wrote.
type Message struct {
	Key         string `json:"key"`
	Queue       string `json:"queue"`
	OrderingKey string `json:"ordering_key"`
	// CreatedAt is when its transaction began.
	CreatedAt *time.Time `json:"created_at"`
	// Details are nil for a role that may not read messages.
	Details *Details `json:"details"`
}

// Details are the rest of a row of messages.
type Details struct {
	// Transaction is the lower half of the number of the transaction that wrote it.
	Transaction string `json:"transaction"`
	// CommittedAt is known with track_commit_timestamp.
	CommittedAt  *time.Time `json:"committed_at"`
	DeliverAt    *time.Time `json:"deliver_at"`
	DelaySeconds *int       `json:"delay_seconds"`
	Priority     *int       `json:"priority"`
	PayloadBytes int        `json:"payload_bytes"`
	// Payload and Headers are there only if they were asked for.
	Payload json.RawMessage `json:"payload,omitempty"`
	Headers json.RawMessage `json:"headers,omitempty"`
}

// Acceptance is a row of dispatched.
type Acceptance struct {
	At                time.Time `json:"at"`
	Attempts          int       `json:"attempts"`
	PossibleDuplicate bool      `json:"possible_duplicate"`
	QueueMessageID    string    `json:"queue_message_id"`
}

// Deferral is a row of deferred.
type Deferral struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	// NotBefore is when it is tried; nil: with its queue or lane.
	NotBefore *time.Time `json:"not_before"`
	Attempts  int        `json:"attempts"`
	// Charged are the failures that count towards a dead letter, of MaxAttempts.
	Charged     int `json:"charged"`
	MaxAttempts int `json:"max_attempts"`

	LastStatus   *int       `json:"last_status"`
	LastError    string     `json:"last_error"`
	UnknownSince *time.Time `json:"unknown_since"`

	position   int64
	queue      string
	visible    bool // its transaction has ended for this snapshot
	forEverNot bool // not_before is infinite
}

// DeadLetter is a row of dead_letters.
type DeadLetter struct {
	At          time.Time  `json:"at"`
	Reason      string     `json:"reason"`
	DiscardedAt *time.Time `json:"discarded_at"`
	Attempts    int        `json:"attempts"`

	LastStatus   *int       `json:"last_status"`
	LastCode     string     `json:"last_code"`
	LastError    string     `json:"last_error"`
	RequestID    string     `json:"request_id"`
	UnknownSince *time.Time `json:"unknown_since"`
	// HoldsLane says that its lane waits until a person decides.
	HoldsLane bool `json:"holds_lane"`
}

// Lane is what a message that waits has before it.
type Lane struct {
	// Kind is "message" for a lane of its own, "ordering_key" or "queue".
	Kind string `json:"kind"`
	// Before counts the deferred messages before it in its lane, and InQueue those
	// in its queue, both up to [Bound].
	Before  int64 `json:"before"`
	InQueue int64 `json:"in_queue"`
	// First is the first of the lane; nil if nothing is before it.
	First *First `json:"first"`
}

// First is the deferred message for which a lane waits.
type First struct {
	MessageID  int64      `json:"message_id"`
	Reason     string     `json:"reason"`
	NotBefore  *time.Time `json:"not_before"`
	LastStatus *int       `json:"last_status"`
	LastError  string     `json:"last_error"`
}

// Queue is what matters of the settings of a queue.
type Queue struct {
	Name   string `json:"name"`
	Paused bool   `json:"paused"`
	paused.Note
	Ordering      string   `json:"ordering"`
	MaxInFlight   *int     `json:"max_in_flight"`
	RatePerSecond *float64 `json:"rate_per_second"`
	MaxAttempts   *int     `json:"max_attempts"`
	OnDeadLetter  string   `json:"on_dead_letter"`
	Envelope      string   `json:"envelope"`
}

// Event is a moment in the life of a message.
type Event struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// Bound is where counts stop.
const Bound = 10_000
