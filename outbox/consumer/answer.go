package consumer

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// QueueError is a request to the queue that did not succeed.
type QueueError struct {
	// Act is consume, ack or nack.
	Act string
	// Queue is the name of the queue.
	Queue string
	// Status is the HTTP status, 0 if there was no answer.
	Status int
	// Code is the queue's word for the error, if it has one.
	Code string
	// RequestID is the queue's number of the request, if it says one.
	RequestID string
	// RetryAfter is the pause that the queue asks for, at most 5 minutes.
	RetryAfter time.Duration
	// Err is what went wrong without an answer, or with reading it.
	Err error
}

// Error implements error.
func (e *QueueError) Error() string {
	text := e.Act + " " + e.Queue + ": "
	switch {
	case e.Err != nil:
		text += e.Err.Error()
	case e.Code != "":
		text += fmt.Sprintf("the queue answered %d %s", e.Status, e.Code)
	default:
		text += fmt.Sprintf("the queue answered %d", e.Status)
	}
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	return text
}

// Unwrap returns the cause, nil if the queue gave an answer.
func (e *QueueError) Unwrap() error { return e.Err }

// readAnswer takes the data out of the envelope; what is known of the answer so
// far becomes its error.
func readAnswer(text []byte, answer QueueError) (json.RawMessage, error) {
	var envelope struct {
		OK       bool            `json:"ok"`
		Data     json.RawMessage `json:"data"`
		Error    *struct{ Code string }
		Metadata struct {
			RequestID string `json:"request_id"`
		}
	}
	err := json.Unmarshal(text, &envelope)
	answer.RequestID = word(envelope.Metadata.RequestID)
	if envelope.Error != nil {
		answer.Code = word(envelope.Error.Code)
	}
	success := answer.Status >= 200 && answer.Status < 300
	switch {
	case success && err == nil && envelope.OK:
		return envelope.Data, nil
	case success && err != nil:
		answer.Err = errors.New("the answer is not the queue's")
	}
	return nil, &answer
}

// word keeps a text that may go into a log: short, and without spaces or control
// characters.
func word(text string) string {
	if len(text) > maxErrorCode {
		return ""
	}
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return ""
		}
	}
	return text
}

// transportError drops the address, which the caller knows.
func transportError(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return outer.Err
	}
	return err
}

// retryAfter is the pause that an answer asks for: seconds, with or without a
// fraction, or a date.
func retryAfter(header http.Header, now time.Time) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		if !(seconds > 0) { // not a number is not above 0 either
			return 0
		}
		return time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

var errNoList = errors.New("the answer has no list of messages with their ids")

// readList understands the forms that clients have seen: a list in "items", in
// "messages", or alone. An answer without any of them is an error: taken for an
// empty list, it would make a queue look empty for ever.
func readList(data json.RawMessage) (messages []leased, err error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) == nil {
		list, ok := members["items"]
		if !ok {
			list = members["messages"]
		}
		data = list
	}
	if string(data) == "null" {
		return nil, nil // how some write an empty list
	}
	if len(data) == 0 || data[0] != '[' || json.Unmarshal(data, &messages) != nil {
		return nil, errNoList
	}
	if slices.ContainsFunc(messages, func(m leased) bool { return m.MessageID == "" }) {
		return nil, errNoList
	}
	return messages, nil
}
