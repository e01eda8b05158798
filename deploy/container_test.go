package deploy_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/relaybin"
)

const containerFile = "container/Dockerfile"

// stage is what an image is built by: its instructions from one FROM to the next.
type stage []instruction

// instruction is one instruction of a Dockerfile, with its flags among the
// arguments.
type instruction struct{ name, args string }

// stages reads a Dockerfile. Those that come before the first FROM are left out.
func stages(t *testing.T, text string) (all []stage) {
	t.Helper()
	text = regexp.MustCompile(`(?m)^\s*#.*\n`).ReplaceAllString(text, "")
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		name, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "FROM" {
			all = append(all, nil)
		}
		if name != "" && len(all) > 0 {
			all[len(all)-1] = append(all[len(all)-1], instruction{name, strings.TrimSpace(args)})
		}
	}
	if len(all) == 0 {
		t.Fatal("no stages")
	}
	return all
}

// one returns the arguments of an instruction that a stage has once.
func (s stage) one(t *testing.T, name string) string {
	t.Helper()
	found := s.all(name)
	if len(found) != 1 {
		t.Fatalf("the stage has %s %d times", name, len(found))
	}
	return found[0]
}

func (s stage) all(name string) (args []string) {
	for _, i := range s {
		if i.name == name {
			args = append(args, i.args)
		}
	}
	return args
}

func TestContainer(t *testing.T) {
	t.Parallel()
	text := read(t, containerFile)
	all := stages(t, text)
	if len(all) != 2 {
		t.Fatalf("%d stages, want one that builds and one that is shipped", len(all))
	}
	build, shipped := all[0], all[1]

	if got := shipped.one(t, "FROM"); got != "scratch" {
		t.Errorf("what is shipped begins with %s, want nothing", got)
	}
	if got := shipped.one(t, "USER"); !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(got) {
		t.Errorf("the user is %s: want numbers, none of them 0", got)
	}
	for _, copied := range shipped.all("COPY") {
		if !strings.HasPrefix(copied, "--from=build ") {
			t.Errorf("COPY %s: everything comes from the stage that builds", copied)
		}
	}
	if len(shipped.all("RUN")) > 0 || len(append(build.all("ADD"), shipped.all("ADD")...)) > 0 {
		t.Error("RUN needs a shell that is not there, ADD takes things from somewhere else")
	}
	for _, label := range []string{"title", "description", "source", "version", "revision"} {
		if !strings.Contains(shipped.one(t, "LABEL"), "org.opencontainers.image."+label+"=") {
			t.Errorf("no label %s", label)
		}
	}
	for _, variable := range shipped.all("ENV") {
		name, _, _ := strings.Cut(variable, "=")
		expectVariable(t, containerFile, name)
	}
	expectBuild(t, build)
	expectCommands(t, shipped)
}

// expectBuild compares how the program is built with how everybody else builds it:
// then the bytes are the same, if Go is.
func expectBuild(t *testing.T, build stage) {
	t.Helper()
	made := regexp.MustCompile(`(?m)^\tCGO_ENABLED=0 (go build .*) -o \S+ (\S+)$`).FindStringSubmatch(read(t, "../Makefile"))
	if made == nil {
		t.Fatal("the Makefile does not build the program")
	}
	want := fmt.Sprintf("CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH %s -o /out/outbox-relay %s", made[1], made[2])
	if !slices.Contains(build.all("RUN"), want) {
		t.Errorf("the program is built by %q, want %q among it", build.all("RUN"), want)
	}
	version := regexp.MustCompile(`(?m)^ARG GO_VERSION=(1\.\d+)\.\d+$`).FindStringSubmatch(read(t, containerFile))
	module := regexp.MustCompile(`(?m)^go (1\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))
	if version == nil || version[1] != module[1] {
		t.Errorf("built with Go %v, want one of %s, to the last digit", version, module[1])
	}
}

// expectCommands tries what the image runs.
func expectCommands(t *testing.T, shipped stage) {
	t.Helper()
	entry, arguments := words(t, shipped.one(t, "ENTRYPOINT")), words(t, shipped.one(t, "CMD"))
	if len(entry) != 1 || !strings.HasSuffix(shipped.all("COPY")[1], " "+entry[0]) {
		t.Errorf("the entry point is %v, which is not what was copied", entry)
	}
	expectVerb(t, arguments)
	_, check, _ := strings.Cut(shipped.one(t, "HEALTHCHECK"), "CMD ")
	command := words(t, check)
	if command[0] != entry[0] {
		t.Errorf("the health check calls %s", command[0])
	}
	expectVerb(t, command[1:])
}

// words are those of an instruction in JSON, the form that needs no shell.
func words(t *testing.T, args string) (list []string) {
	t.Helper()
	if err := json.Unmarshal([]byte(args), &list); err != nil || len(list) == 0 {
		t.Fatalf("%s: %v, %d words", args, err, len(list))
	}
	return list
}

// expectVerb asks the program whether it has a verb with these flags.
func expectVerb(t *testing.T, args []string) {
	t.Helper()
	program, err := relaybin.Build()
	if err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(t.Context(), program, append(args, "--help")...).CombinedOutput()
	if err != nil || !strings.Contains(string(said), "outbox-relay "+args[0]) {
		t.Errorf("outbox-relay has no %v: %v\n%s", args, err, said)
	}
}
