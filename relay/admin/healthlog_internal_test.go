package admin

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestHealthLog_WritesChanges(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.DebugLevel)
	log := zap.New(core)
	verdict := func(ok bool, reasons, warnings []string) *Verdict {
		v := &Verdict{OK: ok, Phase: "active"}
		for _, code := range reasons {
			v.Reasons = append(v.Reasons, Finding{Code: code})
		}
		for _, code := range warnings {
			v.Warnings = append(v.Warnings, Finding{Code: code})
		}
		return v
	}
	var h healthLog
	for _, v := range []*Verdict{
		verdict(false, []string{"starting"}, nil),
		verdict(true, nil, nil),
		verdict(false, []string{"writer", "database", "writer"}, nil),
		verdict(false, []string{"database", "writer"}, nil),
		verdict(false, []string{"writer"}, []string{"slot"}),
		verdict(true, nil, []string{"slot"}),
		verdict(true, nil, nil),
	} {
		h.note(log, v)
	}
	var got []string
	for _, line := range logs.All() {
		fields := line.ContextMap()
		got = append(got, fmt.Sprint(line.Level, " ", fields["ready"], fields["fail"], fields["warn"]))
	}
	want := []string{"warn false [database writer] []", "info false [writer] [slot]", "info true [] [slot]", "info true [] []"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
