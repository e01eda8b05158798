package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestEmulator_ServesUntilStopped(t *testing.T) {
	t.Parallel()
	environment := settings{"EMULATOR_API_KEY": apiKey, "EMULATOR_CONSUME_KEY": "messages", "EMULATOR_QUEUES": "orders"}
	d := start(t, environment, "emulator", "--listen", "127.0.0.1:0", "--queue", "invoices")
	address, _ := d.AwaitMessage(t, "emulator listening").Fields["address"].(string)

	call := func(method, path, body string) string {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+apiKey)
		request.Header.Set("Content-Type", "application/json")
		request.Close = true
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, queue := range []string{"orders", "invoices"} {
		if got := call(http.MethodGet, "/v1/queue/get/"+queue, ""); !strings.Contains(got, `"ok":true`) {
			t.Errorf("queue %s: %s", queue, got)
		}
	}
	call(http.MethodPost, "/v1/queue/publish", `{"queue":"orders","payload":{"a":1},"idempotency_key":"k"}`)
	got := call(http.MethodPost, "/v1/queue/consume", `{"queue":"orders","max_messages":10,"visibility_timeout":30}`)
	if !strings.Contains(got, `"messages":[`) {
		t.Errorf("the setting has no effect: %s", got)
	}
	if code := d.end(); code != exitStopped {
		t.Errorf("exit code is %d", code)
	}
}

func TestEmulator_WrongSettings(t *testing.T) {
	t.Parallel()
	environment := settings{"EMULATOR_CONSUME_KEY": "rows", "EMULATOR_KB": "7", "RELAY_LOG_FORMAT": "xml"}
	expectCode(t, environment, exitUsage, []string{"emulator"},
		`EMULATOR_CONSUME_KEY is "rows"`, `EMULATOR_KB is "7"`, `RELAY_LOG_FORMAT is "xml"`)
	expectCode(t, settings{"EMULATOR_RATE_LIMIT": "fast"}, exitUsage, []string{"emulator"}, "fast")
	expectCode(t, settings{"EMULATOR_KBS": "1000", "EMULATOR_KB": "7"}, exitUsage, []string{"emulator"},
		"EMULATOR_KBS is not a setting and has no effect; did you mean EMULATOR_KB?")
}

func TestEmulator_AddressTaken(t *testing.T) {
	t.Parallel()
	d := start(t, nil, "emulator", "--listen", "127.0.0.1:0")
	address, _ := d.AwaitMessage(t, "emulator listening").Fields["address"].(string)
	expectCode(t, nil, exitUnexpected, []string{"emulator", "--listen", address}, address)
}
