package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// health answers with a verdict: 200 if it is yes, 503 if it is no, with the
// reasons in the body. The body is text with a line for each finding, or JSON for
// those who accept it.
func (s *Server) health(examine func() Verdict) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := examine()
		status := http.StatusOK
		if !v.OK {
			status = http.StatusServiceUnavailable
		}
		if wantsJSON(r) {
			writeJSON(w, status, v)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(v.String()))
	}
}

// String is the verdict for people and for logs: a line that begins with ok or
// fail, and one for each finding.
func (v Verdict) String() string {
	var b strings.Builder
	word := "ok"
	if !v.OK {
		word = "fail"
	}
	fmt.Fprintf(&b, "%s: %s\n", word, v.Phase)
	for _, f := range v.Reasons {
		fmt.Fprintf(&b, "fail %s: %s%s\n", f.Code, f.Text, f.advice())
	}
	for _, f := range v.Warnings {
		fmt.Fprintf(&b, "warn %s: %s%s\n", f.Code, f.Text, f.advice())
	}
	return b.String()
}

func (f *Finding) advice() string {
	if f.Hint == "" || strings.Contains(f.Text, f.Hint) {
		return ""
	}
	return " (" + f.Hint + ")"
}

// wantsJSON reports whether JSON is named among what the client accepts.
func wantsJSON(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "application/json")
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(body) // the client may be gone
}
