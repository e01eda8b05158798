package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionInfo is the answer of the verb version.
type versionInfo struct {
	SchemaVersion int    `json:"schema_version"`
	Version       string `json:"version"`
	Revision      string `json:"revision,omitempty"`
	Modified      bool   `json:"modified,omitempty"`
	Go            string `json:"go"`
	Platform      string `json:"platform"`
}

// currentVersion reads what the Go tool recorded in the binary.
func currentVersion() versionInfo {
	v := versionInfo{SchemaVersion: 1, Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func newVersion(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		v := currentVersion()
		if *asJSON {
			return p.printJSON(v)
		}
		_, err := fmt.Fprintf(p.out, "outbox-relay %s (%s, %s)\n", v.Version, v.Go, v.Platform)
		return err
	}
	return cmd
}
