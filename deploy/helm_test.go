package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sethvargo/go-envconfig"
	"go.yaml.in/yaml/v3"

	"github.com/outbox-relay/outbox-relay/config"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
)

const chart = "helm/outbox-relay"

// needed are the values without which there is no relay.
var needed = map[string]any{
	"database.url":                 "postgres://outbox_relay@db.example/shop?sslmode=verify-full",
	"database.passwordSecret.name": "outbox-relay-database",
	"queue.apiKeySecret.name":      "outbox-relay-queue",
}

// everything are values that switch on what is off.
var everything = with(needed, map[string]any{
	"image.digest":                            "sha256:" + strings.Repeat("0", 64),
	"database.replicationUrl":                 "postgres://outbox_relay@db1.example/shop",
	"database.rootCertConfigMap.name":         "roots",
	"queue.baseUrl":                           "https://queue.example",
	"settings":                                map[string]any{"RELAY_RETENTION": "24h", "RELAY_WINDOW_BYTES": 33554432, "INFRAI_ERROR_TEXT": true},
	"extraEnv":                                []any{map[string]any{"name": "RELAY_LOG_LEVEL", "value": "debug"}},
	"extraVolumes":                            []any{map[string]any{"name": "more", "emptyDir": map[string]any{}}},
	"extraVolumeMounts":                       []any{map[string]any{"name": "more", "mountPath": "/more"}},
	"imagePullSecrets":                        []any{map[string]any{"name": "puller"}},
	"migrations.enabled":                      true,
	"migrations.database.url":                 "postgres://outbox_owner@db.example/shop?sslmode=verify-full",
	"migrations.database.passwordSecret.name": "outbox-owner",
	"adminTokenSecret.name":                   "outbox-relay-admin",
	"podLabels":                               map[string]any{"team": "shop"},
	"podAnnotations":                          map[string]any{"note": "text"},
	"nodeSelector":                            map[string]any{"disk": "fast"},
	"tolerations":                             []any{map[string]any{"operator": "Exists"}},
	"affinity":                                map[string]any{"nodeAffinity": map[string]any{}},
	"priorityClassName":                       "high",
	"networkPolicy.enabled":                   true,
	"networkPolicy.databasePeers":             []any{map[string]any{"ipBlock": map[string]any{"cidr": "10.0.0.0/8"}}},
	"networkPolicy.adminPeers":                []any{map[string]any{"podSelector": map[string]any{}}},
	"networkPolicy.extraEgress":               []any{map[string]any{"ports": []any{map[string]any{"port": 4318}}}},
	"podMonitor.enabled":                      true,
	"podMonitor.labels":                       map[string]any{"release": "prometheus"},
	"prometheusRule.enabled":                  true,
	"grafanaDashboard.enabled":                true,
	"grafanaDashboard.annotations":            map[string]any{"grafana_folder": "Shop"},
})

func with(values, more map[string]any) map[string]any {
	all := maps.Clone(values)
	maps.Copy(all, more)
	return all
}

// nest turns names with dots into the values of a chart.
func nest(values map[string]any) map[string]any {
	nested := map[string]any{}
	for path, value := range values {
		names, at := strings.Split(path, "."), nested
		for _, name := range names[:len(names)-1] {
			next, ok := at[name].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[name] = next
			}
			at = next
		}
		at[names[len(names)-1]] = value
	}
	return nested
}

// helm runs helm with values.
func helm(t *testing.T, values map[string]any, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	text, err := json.Marshal(nest(values)) // which is YAML, too
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, said bytes.Buffer
	command := exec.CommandContext(t.Context(), helmProgram(t), append(args, "--values", file, "--kube-version", "1.25.0")...)
	command.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir())
	command.Stdout, command.Stderr = &out, &said
	err = command.Run()
	return out.String(), said.String(), err
}

// helmProgram finds what hack/helm has made.
func helmProgram(t *testing.T) string {
	t.Helper()
	if named := os.Getenv("OUTBOX_HELM"); named != "" {
		return named
	}
	if found, err := exec.LookPath("helm"); err == nil {
		return found
	}
	built, err := filepath.Glob("../bin/helm-v?.*[0-9]")
	if err != nil || len(built) == 0 {
		t.Fatal("no helm: hack/helm builds one")
	}
	return built[len(built)-1]
}

// rendered is what the chart makes of values, by kind and component.
func rendered(t *testing.T, values map[string]any) map[string]*object {
	t.Helper()
	out, said, err := helm(t, values, "template", "prod", chart, "--namespace", "shop")
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	all := make(map[string]*object)
	for decoder := yaml.NewDecoder(strings.NewReader(out)); ; {
		o := new(object)
		switch err := decoder.Decode(o); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatalf("%v\n%s", err, out)
		case o.Kind != "":
			all[o.Kind] = o
		}
	}
}

// object is what the tests look at of the things in a cluster.
type object struct {
	Kind     string   `yaml:"kind"`
	Metadata metadata `yaml:"metadata"`
	Spec     struct {
		podSpec  `yaml:",inline"`
		Replicas int       `yaml:"replicas"`
		Template *template `yaml:"template"`
		Strategy any       `yaml:"strategy"`
		// Selector is that of a workload, or of a Service, which has it bare.
		Selector            map[string]any `yaml:"selector"`
		PodSelector         map[string]any `yaml:"podSelector"`
		PodMetricsEndpoints []struct {
			Port, Path string
		} `yaml:"podMetricsEndpoints"`
		Ports []struct {
			TargetPort string `yaml:"targetPort"`
		} `yaml:"ports"`
		Groups []any `yaml:"groups"`
	} `yaml:"spec"`
	Data map[string]string `yaml:"data"`
}

type metadata struct {
	Name        string            `yaml:"name"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

type template struct {
	Metadata metadata `yaml:"metadata"`
	Spec     podSpec  `yaml:"spec"`
}

type podSpec struct {
	ServiceAccountName            string         `yaml:"serviceAccountName"`
	AutomountServiceAccountToken  *bool          `yaml:"automountServiceAccountToken"`
	TerminationGracePeriodSeconds int            `yaml:"terminationGracePeriodSeconds"`
	SecurityContext               map[string]any `yaml:"securityContext"`
	Containers                    []container    `yaml:"containers"`
	Volumes                       []struct {
		Name string `yaml:"name"`
	} `yaml:"volumes"`
}

type container struct {
	Name  string   `yaml:"name"`
	Image string   `yaml:"image"`
	Args  []string `yaml:"args"`
	Env   []struct {
		Name, Value string
	} `yaml:"env"`
	Ports []struct {
		Name          string `yaml:"name"`
		ContainerPort int    `yaml:"containerPort"`
	} `yaml:"ports"`
	LivenessProbe   *probe         `yaml:"livenessProbe"`
	ReadinessProbe  *probe         `yaml:"readinessProbe"`
	SecurityContext map[string]any `yaml:"securityContext"`
	VolumeMounts    []struct {
		Name      string `yaml:"name"`
		MountPath string `yaml:"mountPath"`
		SubPath   string `yaml:"subPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet struct {
		Path, Port string
	} `yaml:"httpGet"`
}

// pod is the one that an object makes; nil if it makes none.
func (o *object) pod() *podSpec {
	switch {
	case o.Spec.Template != nil:
		return &o.Spec.Template.Spec
	case o.Kind == "Pod":
		return &o.Spec.podSpec
	}
	return nil
}

func (o *object) podLabels() map[string]string {
	if o.Spec.Template != nil {
		return o.Spec.Template.Metadata.Labels
	}
	return o.Metadata.Labels
}

func TestChart_Lint(t *testing.T) {
	t.Parallel()
	for name, values := range map[string]map[string]any{"needed": needed, "everything": everything} {
		if out, said, err := helm(t, values, "lint", "--strict", chart); err != nil {
			t.Errorf("%s: %v\n%s%s", name, err, out, said)
		}
	}
}

func TestChart_Kinds(t *testing.T) {
	t.Parallel()
	few := []string{"Deployment", "Pod", "PodDisruptionBudget", "Service", "ServiceAccount"}
	if got := slices.Sorted(maps.Keys(rendered(t, needed))); !slices.Equal(got, few) {
		t.Errorf("with what is needed the chart makes %v, want %v", got, few)
	}
	all := slices.Sorted(slices.Values(append(few, "ConfigMap", "Job", "NetworkPolicy", "PodMonitor", "PrometheusRule")))
	if got := slices.Sorted(maps.Keys(rendered(t, everything))); !slices.Equal(got, all) {
		t.Errorf("with everything the chart makes %v, want %v", got, all)
	}
}

func TestChart_Pods(t *testing.T) {
	t.Parallel()
	for _, values := range []map[string]any{needed, everything} {
		for kind, o := range rendered(t, values) {
			if pod := o.pod(); pod != nil {
				expectClosed(t, kind, pod)
				expectFed(t, kind, pod)
				expectVerb(t, pod.Containers[0].Args)
			}
		}
	}
}

// expectClosed looks whether a pod may do more than it has to.
func expectClosed(t *testing.T, kind string, pod *podSpec) {
	t.Helper()
	if pod.SecurityContext["runAsNonRoot"] != true || pod.SecurityContext["runAsUser"] == 0 || pod.SecurityContext["seccompProfile"] == nil {
		t.Errorf("%s: the pod runs with %v", kind, pod.SecurityContext)
	}
	if token := pod.AutomountServiceAccountToken; token == nil || *token {
		t.Errorf("%s: the pod gets a token for the cluster", kind)
	}
	for _, c := range pod.Containers {
		drop, _ := c.SecurityContext["capabilities"].(map[string]any)
		if c.SecurityContext["allowPrivilegeEscalation"] != false || c.SecurityContext["readOnlyRootFilesystem"] != true || len(drop) == 0 {
			t.Errorf("%s: %s runs with %v", kind, c.Name, c.SecurityContext)
		}
	}
}

// expectFed looks whether a container gets what it is told to use, and secrets as
// files in folders, which change with them.
func expectFed(t *testing.T, kind string, pod *podSpec) {
	t.Helper()
	volumes := make(map[string]bool)
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	for _, c := range pod.Containers {
		var folders []string
		for _, m := range c.VolumeMounts {
			folders = append(folders, m.MountPath)
			if !volumes[m.Name] || m.SubPath != "" {
				t.Errorf("%s: %s mounts %+v", kind, c.Name, m)
			}
		}
		for _, e := range c.Env {
			if e.Name != "PGSSLROOTCERT" { // libpq's
				expectVariable(t, chart, e.Name)
			}
			file := strings.HasSuffix(e.Name, "_FILE") || e.Name == "PGSSLROOTCERT"
			if file && !slices.Contains(folders, filepath.Dir(e.Value)) {
				t.Errorf("%s: %s=%s, and mounted are %v", kind, e.Name, e.Value, folders)
			}
			if e.Name == "INFRAI_API_KEY" || e.Name == "RELAY_ADMIN_TOKEN" {
				t.Errorf("%s: %s is in the environment", kind, e.Name)
			}
		}
	}
}

func TestChart_Settings(t *testing.T) {
	t.Parallel()
	env := make(map[string]string)
	for _, e := range rendered(t, everything)["Deployment"].pod().Containers[0].Env {
		if _, twice := env[e.Name]; twice {
			t.Errorf("%s is set twice", e.Name)
		}
		env[e.Name] = e.Value
	}
	for name, want := range map[string]string{
		"RELAY_RETENTION": "24h", "RELAY_WINDOW_BYTES": "33554432", "INFRAI_ERROR_TEXT": "true", "RELAY_LOG_LEVEL": "debug",
		"RELAY_ADMIN_LISTEN": ":9464", "INFRAI_BASE_URL": "https://queue.example",
		"RELAY_ADMIN_TOKEN_FILE": "/etc/outbox-relay/admin/token",
	} {
		if env[name] != want {
			t.Errorf("%s is %q, want %q", name, env[name], want)
		}
	}
}

// What selects the relay's pods selects them and no others.
func TestChart_Selectors(t *testing.T) {
	t.Parallel()
	all := rendered(t, everything)
	relay := all["Deployment"].podLabels()
	for kind, o := range all {
		selector := o.Spec.Selector
		if kind == "NetworkPolicy" {
			selector = o.Spec.PodSelector
		}
		if labels, ok := selector["matchLabels"].(map[string]any); ok {
			selector = labels
		}
		if slices.Contains([]string{"ConfigMap", "Job", "Pod", "PrometheusRule", "ServiceAccount"}, kind) {
			continue // they select nothing
		}
		if !matches(selector, relay) {
			t.Errorf("%s selects %v, and the pods are %v", kind, selector, relay)
		}
		for _, other := range []string{"Job", "Pod"} {
			if matches(selector, all[other].podLabels()) {
				t.Errorf("%s also selects the pods of the %s", kind, other)
			}
		}
	}
}

func matches(selector map[string]any, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return len(selector) > 0
}

func TestChart_Deployment(t *testing.T) {
	t.Parallel()
	all := rendered(t, needed)
	deployment := all["Deployment"]
	pod := deployment.pod()
	if deployment.Spec.Replicas != 2 {
		t.Errorf("%d replicas, want one that works and one that stands by", deployment.Spec.Replicas)
	}
	if got, want := pod.ServiceAccountName, all["ServiceAccount"].Metadata.Name; got != want {
		t.Errorf("the pods are of %s, made is %s", got, want)
	}
	cfg, _ := config.Load(t.Context(), envconfig.MapLookuper(nil)) // the defaults
	if grace := time.Duration(pod.TerminationGracePeriodSeconds) * time.Second; grace < cfg.Relay.DrainTimeout+15*time.Second {
		t.Errorf("a stop may take %s, and the drain alone %s", grace, cfg.Relay.DrainTimeout)
	}
	if port := all["Service"].Spec.Ports[0].TargetPort; port != pod.Containers[0].Ports[0].Name {
		t.Errorf("the service leads to the port %s", port)
	}
}

// A relay without a database answers on every path that the chart asks for.
func TestChart_AsksWhatIsAnswered(t *testing.T) {
	t.Parallel()
	all := rendered(t, everything)
	c := all["Deployment"].pod().Containers[0]
	monitored := all["PodMonitor"].Spec.PodMetricsEndpoints[0]
	paths := []string{c.LivenessProbe.HTTPGet.Path, c.ReadinessProbe.HTTPGet.Path, monitored.Path}
	for _, port := range []string{c.LivenessProbe.HTTPGet.Port, c.ReadinessProbe.HTTPGet.Port, monitored.Port} {
		if port != c.Ports[0].Name {
			t.Errorf("port %s is asked, %s is there", port, c.Ports[0].Name)
		}
	}
	relay := relaybin.Run(t, map[string]string{
		"DATABASE_URL": "postgres://relay@127.0.0.1:1/nowhere", "INFRAI_API_KEY": "k",
	}, "run")
	address := relay.AwaitLog(t, "admin server listens").Fields["address"].(string)
	for _, path := range paths {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode == http.StatusNotFound {
			t.Errorf("nothing answers on %s", path)
		}
	}
}

// The chart leads to the alert rules by a link, which helm follows when it renders
// and packs: there is one copy of them.
func TestChart_Alerts(t *testing.T) {
	t.Parallel()
	var want struct{ Groups []any }
	if err := yaml.Unmarshal([]byte(read(t, "prometheus/alerts.yaml")), &want); err != nil {
		t.Fatal(err)
	}
	got := rendered(t, everything)["PrometheusRule"].Spec.Groups
	if diff := cmp.Diff(want.Groups, got); diff != "" || len(got) == 0 {
		t.Errorf("%d groups come out of the chart:\n%s", len(got), diff)
	}
}

// The same holds for the dashboard, which has a label by which it is found.
func TestChart_Dashboard(t *testing.T) {
	t.Parallel()
	got := rendered(t, everything)["ConfigMap"]
	if want := strings.TrimSpace(read(t, "grafana/outbox-relay.json")); got.Data["outbox-relay.json"] != want {
		t.Errorf("another dashboard comes out of the chart: %d bytes, want %d", len(got.Data["outbox-relay.json"]), len(want))
	}
	if got.Metadata.Labels["grafana_dashboard"] != "1" || got.Metadata.Annotations["grafana_folder"] != "Shop" {
		t.Errorf("it is %+v", got.Metadata)
	}
}

// What is forgotten, misspelt or a secret is refused before anything is changed.
func TestChart_RefusesValues(t *testing.T) {
	t.Parallel()
	for name, values := range map[string]map[string]any{
		"nothing":                 {},
		"no database":             with(needed, map[string]any{"database.url": ""}),
		"no key":                  with(needed, map[string]any{"queue.apiKeySecret.name": ""}),
		"a password in the URL":   with(needed, map[string]any{"database.url": "postgres://outbox_relay:geheim@db.example/shop"}),
		"a password in the query": with(needed, map[string]any{"database.url": "postgres://db.example/shop?user=u&password=geheim"}),
		"a password for the WAL":  with(needed, map[string]any{"database.replicationUrl": "postgres://u:geheim@db.example/shop"}),
		"a key in the settings":   with(needed, map[string]any{"settings": map[string]any{"INFRAI_API_KEY": "geheim"}}),
		"a token in the settings": with(needed, map[string]any{"settings": map[string]any{"RELAY_ADMIN_TOKEN": "geheim"}}),
		"a strange setting":       with(needed, map[string]any{"settings": map[string]any{"RELEY_RETENTION": "24h"}}),
		"a misspelt value":        with(needed, map[string]any{"replica": 2}),
		"many replicas":           with(needed, map[string]any{"replicas": 20}),
		"migrations as nobody":    with(needed, map[string]any{"migrations.enabled": true}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, said, err := helm(t, values, "template", "prod", chart)
			if err == nil || !strings.Contains(said, "values don't meet the specifications of the schema") {
				t.Errorf("it is taken: %v, %s", err, said)
			}
		})
	}
}
