package infrai_test

import (
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/relay/infrai"
)

func TestConfig_Validate_ReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	cfg := infrai.Config{BaseURL: "nonsense", IdleTimeout: -1, ConnectionMaxAge: -1}
	err := cfg.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, name := range []string{
		"BASE_URL", "API_KEY or API_KEY_FILE", "REQUEST_TIMEOUT", "MAX_RETRY_AFTER", "MAX_CONNECTIONS",
		"IDLE_TIMEOUT", "CONNECTION_MAX_AGE", "MAX_BODY_BYTES",
	} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is missing in:\n%v", name, err)
		}
	}
	good := settings("https://host.invalid/gateway/")
	if err := good.Validate(); err != nil {
		t.Errorf("good settings: %v", err)
	}
	good.APIKeyFile = "file"
	if err := good.Validate(); err == nil || !strings.Contains(err.Error(), "both set") {
		t.Errorf("two keys: %v", err)
	}
}
