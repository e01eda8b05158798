package infrai

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzDecodeEnvelope holds that what is taken for an envelope is JSON that says
// ok, and that what comes out of it is safe to log and store.
func FuzzDecodeEnvelope(f *testing.F) {
	f.Add(`{"ok":true,"data":{"message_id":"msg_1"},"error":null,"metadata":{"request_id":"r1","cost_usd":1e-5}}`)
	f.Add(`{"ok":false,"error":{"code":"QUEUE_NOT_FOUND","message":"m\u000a","hint":"h"},"metadata":{}} `)
	f.Add(`{"data":[{"message_id":1}],"ok":true,"ok":false}`)
	f.Add(`{"ok":true,"error":"\ud800","metadata":"\`)
	f.Add(`<html>`)
	f.Fuzz(func(t *testing.T, body string) {
		e, enveloped := decodeEnvelope(body)
		if enveloped {
			var fields map[string]json.RawMessage
			if utf8.ValidString(body) && json.Unmarshal([]byte(body), &fields) != nil {
				t.Fatalf("%q was taken for an envelope", body)
			}
		}
		for _, id := range []string{e.messageID, e.requestID, e.code} {
			if len(id) > maxIdentifier || !graphic(id) {
				t.Fatalf("%q has the id %q", body, id)
			}
		}
		if line := oneLine(e.text); len(line) > maxText || strings.ContainsAny(line, "\r\n") {
			t.Fatalf("%q has the text %q", body, line)
		}
	})
}
