package deploy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const composeFile = "compose/compose.yaml"

// composed is what a compose file says, as far as this one says it.
type composed struct {
	Services map[string]composedService `yaml:"services"`
	Volumes  map[string]any             `yaml:"volumes"`
}

type composedService struct {
	Profiles    []string          `yaml:"profiles"`
	Image       string            `yaml:"image"`
	Build       map[string]string `yaml:"build"`
	Command     []string          `yaml:"command"`
	Environment map[string]string `yaml:"environment"`
	Ports       []string          `yaml:"ports"`
	Volumes     []string          `yaml:"volumes"`
	ReadOnly    bool              `yaml:"read_only"`
	CapDrop     []string          `yaml:"cap_drop"`
	SecurityOpt []string          `yaml:"security_opt"`
	Restart     string            `yaml:"restart"`
	StopGrace   time.Duration     `yaml:"stop_grace_period"`
	DependsOn   map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
	Healthcheck struct {
		Test     []string      `yaml:"test"`
		Interval time.Duration `yaml:"interval"`
		Timeout  time.Duration `yaml:"timeout"`
		Retries  int           `yaml:"retries"`
	} `yaml:"healthcheck"`
}

func readComposed(t *testing.T) composed {
	t.Helper()
	var file struct {
		Name        string `yaml:"name"`
		Relay       any    `yaml:"x-relay"`
		Environment any    `yaml:"x-environment"`
		composed    `yaml:",inline"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(read(t, composeFile)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	return file.composed
}

func TestCompose(t *testing.T) {
	t.Parallel()
	file := readComposed(t)
	for name, service := range file.Services {
		for _, port := range service.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s listens on %s: its passwords are known to everybody", name, port)
			}
		}
		for other, on := range service.DependsOn {
			expectCondition(t, name, other, on.Condition, file.Services[other])
		}
		switch name {
		case "postgres":
		case "prometheus", "grafana":
			expectMonitoring(t, name, service)
		default:
			expectOurs(t, name, service)
		}
	}
	server := file.Services["postgres"]
	if !strings.Contains(strings.Join(server.Command, " "), "wal_level=logical") {
		t.Errorf("postgres is started by %v, without logical WAL", server.Command)
	}
	for _, mounted := range server.Volumes {
		volume, _, _ := strings.Cut(mounted, ":")
		if _, ok := file.Volumes[volume]; !ok {
			t.Errorf("postgres mounts %s, which is no volume", volume)
		}
	}
	relay := file.Services["relay"]
	if relay.StopGrace < 45*time.Second || relay.Restart != "on-failure" || relay.Environment["DATABASE_URL"] == "" {
		t.Errorf("the relay is %+v", relay)
	}
}

// expectMonitoring is about the services that are not started unless somebody asks
// for them, and that are given files of this repository.
func expectMonitoring(t *testing.T, name string, service composedService) {
	t.Helper()
	if !slices.Equal(service.Profiles, []string{"monitoring"}) || !strings.Contains(service.Image, ":") {
		t.Errorf("%s has profiles %v and image %q", name, service.Profiles, service.Image)
	}
	for _, mounted := range service.Volumes {
		file, _, _ := strings.Cut(mounted, ":")
		if _, err := os.Stat(filepath.Join("compose", file)); err != nil || !strings.HasSuffix(mounted, ":ro") {
			t.Errorf("%s mounts %s: %v", name, mounted, err)
		}
	}
}

// Prometheus takes its file, with the rules beside it as they are mounted.
func TestCompose_Prometheus(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, source := range map[string]string{"prometheus.yml": "compose/prometheus.yaml", "alerts.yaml": alertsFile} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(read(t, source)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	promtool(t, "check", "config", filepath.Join(folder, "prometheus.yml"))
}

// expectCondition looks whether what a service waits for can come about.
func expectCondition(t *testing.T, name, other, condition string, service composedService) {
	t.Helper()
	ends := service.Restart == "no"
	switch condition {
	case "service_healthy":
		if len(service.Healthcheck.Test) < 2 || service.Healthcheck.Retries == 0 {
			t.Errorf("%s waits for the health of %s, which has no check", name, other)
		}
	case "service_completed_successfully":
		if !ends {
			t.Errorf("%s waits for the end of %s, which is started again and again", name, other)
		}
	default:
		t.Errorf("%s waits until %s is %q", name, other, condition)
	}
}

// expectOurs is about the services that are this program.
func expectOurs(t *testing.T, name string, service composedService) {
	t.Helper()
	if got := service.Build["context"] + " " + service.Build["dockerfile"]; got != "../.. deploy/"+containerFile {
		t.Errorf("%s is built from %s", name, got)
	}
	if !service.ReadOnly || len(service.CapDrop) != 1 || service.CapDrop[0] != "ALL" || len(service.SecurityOpt) != 1 {
		t.Errorf("%s may do more than it needs", name)
	}
	for variable := range service.Environment {
		expectVariable(t, composeFile, variable)
	}
	expectVerb(t, service.Command)
	if test := service.Healthcheck.Test; len(test) > 0 {
		if test[0] != "CMD" || test[1] != "/outbox-relay" {
			t.Errorf("the check of %s is %v: there is no shell", name, test)
		}
		expectVerb(t, test[2:])
	}
}
