package config

import (
	"slices"
	"strings"
)

// Unknown is a variable that looks like a setting and is none.
type Unknown struct {
	// Name is the name as it stands in the environment.
	Name string
	// Nearest is the setting with the most similar name; empty if none is
	// similar.
	Nearest string
}

// String tells a person.
func (u Unknown) String() string {
	text := u.Name + " is not a setting and has no effect"
	if u.Nearest != "" {
		text += "; did you mean " + u.Nearest + "?"
	}
	return text
}

// FindUnknown looks through an environment, such as os.Environ, for variables
// that somebody may have meant as settings: all with the prefix RELAY_, and
// those that are nearly another setting's name. A misspelled setting has no
// effect, so the caller says so in the log.
func FindUnknown(environ []string) []Unknown {
	return find(environ, new(Config), func(name, near string) bool {
		return strings.HasPrefix(name, "RELAY_") || strings.HasPrefix(name, "INFRAI_") && near != ""
	})
}

// FindUnknownOf is FindUnknown for a verb with settings of its own: those of the
// struct that settings points to, whose names in the environment all have the
// prefix.
func FindUnknownOf(settings any, prefix string, environ []string) []Unknown {
	return find(environ, settings, func(name, _ string) bool { return strings.HasPrefix(name, prefix) })
}

func find(environ []string, settings any, meant func(name, near string) bool) []Unknown {
	var known []string
	for _, v := range variables(settings) {
		known = append(known, v.name)
	}
	var unknown []Unknown
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if slices.Contains(known, name) || injected(name) {
			continue
		}
		if near := nearest(name, known); meant(name, near) {
			unknown = append(unknown, Unknown{name, near})
		}
	}
	slices.SortFunc(unknown, func(a, b Unknown) int { return strings.Compare(a.Name, b.Name) })
	return unknown
}

// injected reports whether Kubernetes sets such a variable for a service that is
// named relay.
func injected(name string) bool {
	return strings.HasPrefix(name, "RELAY_SERVICE_") || name == "RELAY_PORT" || strings.HasPrefix(name, "RELAY_PORT_")
}

// nearest is the known name with the fewest edits, if they are few.
func nearest(name string, known []string) string {
	best, fewest := "", 1+len(name)/4
	for _, candidate := range known {
		if n := edits(name, candidate); n < fewest {
			best, fewest = candidate, n
		}
	}
	return best
}

// edits counts the insertions, deletions and replacements that turn a into b.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := corner
			if a[i] != b[j] {
				replace++
			}
			corner = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
