package outbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// marshalPayload turns a payload into the JSON text that goes to the server.
func marshalPayload(payload any) (string, error) {
	text, err := json.Marshal(payload)
	if err != nil {
		return "", fmt.Errorf("marshal payload: %w", err)
	}
	if text[0] != '{' {
		return "", payloadError("a JSON object", describe(payload, text))
	}
	if !utf8.Valid(text) {
		return "", payloadError("UTF-8", "other bytes")
	}
	size, err := textSize(text)
	if err != nil {
		return "", err
	}
	if size > MaxPayloadBytes {
		// Repeated names count once; nearly nobody has them, so look only now.
		if size, err = textSize(lastOfRepeatedNames(text)); err != nil {
			return "", err
		}
	}
	if size > MaxPayloadBytes {
		return "", payloadError(fmt.Sprintf("at most %d bytes as Postgres prints it", MaxPayloadBytes), fmt.Sprintf("%d", size))
	}
	return string(text), nil
}

func payloadError(limit, got string) error {
	return &LimitError{"payload", limit, got}
}

// describe says what stands in the place of an object, without its content.
func describe(payload any, text []byte) string {
	switch payload.(type) {
	case []byte:
		return "[]byte, which encoding/json writes as a base64 string; use json.RawMessage for JSON that is ready"
	case string:
		return "a string; use json.RawMessage for JSON that is ready"
	}
	switch text[0] {
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// lastOfRepeatedNames drops what jsonb drops: all but the last value of each
// name of an object. The text is valid JSON.
func lastOfRepeatedNames(text []byte) []byte {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return text
	}
	short, err := json.Marshal(value)
	if err != nil {
		return text
	}
	return short
}
