package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-relay/outbox-relay/config"
)

func TestFindUnknown(t *testing.T) {
	t.Parallel()
	got := config.FindUnknown([]string{
		"RELAY_SLOT=a",
		"DATABASE_URL=x",
		"PATH=/bin",
		"RELAY_SLTO=b",
		"RELAY_MAX_INFLIGHT=1",
		"RELAY_WHATEVER_ELSE_THIS_MAY_BE=1",
		"INFRAI_PROJECT_OF_SOMEBODY=1",
		"RELAY_SERVICE_HOST=10.0.0.1",
		"RELAY_PORT=tcp://10.0.0.1:80",
		"RELAY_PORT_80_TCP=tcp://10.0.0.1:80",
	})
	want := []config.Unknown{
		{Name: "RELAY_MAX_INFLIGHT", Nearest: "RELAY_MAX_IN_FLIGHT"},
		{Name: "RELAY_SLTO", Nearest: "RELAY_SLOT"},
		{Name: "RELAY_WHATEVER_ELSE_THIS_MAY_BE"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unknown variables (-want +got):\n%s", diff)
	}
}

func TestFindUnknownOf(t *testing.T) {
	t.Parallel()
	var settings struct {
		Toy struct {
			Size string `env:"SIZE"`
		} `env:", prefix=TOY_"`
	}
	got := config.FindUnknownOf(&settings, "TOY_", []string{"TOY_SIZE=a", "TOY_SIZ=b", "TOY_COLOUR=c", "RELAY_SLTO=d"})
	want := []config.Unknown{{Name: "TOY_COLOUR"}, {Name: "TOY_SIZ", Nearest: "TOY_SIZE"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unknown variables (-want +got):\n%s", diff)
	}
}
