package deploy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// dashboard is what matters of a dashboard of Grafana.
type dashboard struct {
	Panels []struct {
		ID      int    `json:"id"`
		Type    string `json:"type"`
		Title   string `json:"title"`
		GridPos struct{ X, Y, W, H int }
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
}

func readDashboard(t *testing.T) *dashboard {
	t.Helper()
	d := new(dashboard)
	if err := json.Unmarshal([]byte(read(t, "grafana/outbox-relay.json")), d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Every query asks for what the program exports, is one that Prometheus
// understands, and looks at the relays that were chosen.
func TestDashboard_AsksForWhatIsExported(t *testing.T) {
	t.Parallel()
	types := exported(t)
	types["process_resident_memory_bytes"] = "gauge" // of Prometheus's own client
	var rules strings.Builder
	rules.WriteString("groups: [{name: dashboard, rules: [\n")
	for _, p := range readDashboard(t).Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			expectMetrics(t, types, p.Title, target.Expr)
			if strings.Count(target.Expr, `job="$job"`) != strings.Count(target.Expr, "outbox_relay_")+strings.Count(target.Expr, "process_") {
				t.Errorf("%s looks at all jobs: %s", p.Title, target.Expr)
			}
			expr, err := json.Marshal(strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
			if err != nil {
				t.Fatal(err)
			}
			rules.WriteString("{record: panel, expr: " + string(expr) + "},\n")
		}
	}
	rules.WriteString("]}]\n")
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", "--lint=none", file)
}

// Panels fill their rows and lie on no other.
func TestDashboard_PanelsDoNotOverlap(t *testing.T) {
	t.Parallel()
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range readDashboard(t).Panels {
		if ids[p.ID] {
			t.Errorf("two panels have id %d", p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Errorf("%s lies on %s, or beyond the edge", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
