package admin

import (
	"slices"

	"go.uber.org/zap"
)

// healthLog writes a line whenever other codes than before are found: who reads the log
// afterwards sees what the page showed, and when. The texts are where they arise. The
// zero healthLog has found nothing.
type healthLog struct {
	began      bool
	fail, warn []string
}

// note compares a verdict with the one before.
func (h *healthLog) note(log *zap.Logger, v *Verdict) {
	if !h.began { // a relay that starts is not ready yet, as a matter of course
		h.began = true
		return
	}
	fail, warn := codesOf(v.Reasons), codesOf(v.Warnings)
	if slices.Equal(fail, h.fail) && slices.Equal(warn, h.warn) {
		return
	}
	write := log.Info
	if slices.ContainsFunc(fail, func(code string) bool { return !slices.Contains(h.fail, code) }) {
		write = log.Warn
	}
	h.fail, h.warn = fail, warn
	write("health changed", zap.String("phase", string(v.Phase)), zap.Bool("ready", v.OK), zap.Strings("fail", fail), zap.Strings("warn", warn))
}

// codesOf are the codes of findings, each once.
func codesOf(findings []Finding) []string {
	codes := make([]string, 0, len(findings))
	for i := range findings {
		codes = append(codes, findings[i].Code)
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}
