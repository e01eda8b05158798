package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Error lists everything that is wrong with the settings.
type Error struct {
	// Problems are the single errors; each begins with a variable's name.
	Problems []error
}

// Error implements error: one line for each problem.
func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d settings are wrong:", len(e.Problems))
	for _, problem := range e.Problems {
		b.WriteString("\n" + problem.Error())
	}
	return b.String()
}

// Unwrap returns the single errors.
func (e *Error) Unwrap() []error { return e.Problems }

// Hint says where to look.
func (e *Error) Hint() string { return "docs/configuration.md lists every setting with its default" }

// problems collects errors, at most one for each variable: the first one found
// is the nearest to the cause.
type problems struct {
	variables []variable
	errs      []error
	seen      map[string]bool
}

// add takes an error, or several joined into one, whose texts begin with the
// name of a variable. Packages do not know the prefix of their variables' names,
// so it is put before each name in the text.
func (p *problems) add(prefix string, err error) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			p.add(prefix, err)
		}
		return
	}
	text := p.withPrefix(prefix, err.Error())
	variable := text[:strings.IndexAny(text+" ", " :")]
	if p.seen[variable] {
		return
	}
	if p.seen == nil {
		p.seen = make(map[string]bool)
	}
	p.seen[variable] = true
	p.errs = append(p.errs, errors.New(text))
}

func (p *problems) withPrefix(prefix, text string) string {
	if prefix == "" {
		return text
	}
	return capitals.ReplaceAllStringFunc(text, func(word string) string {
		if slices.ContainsFunc(p.variables, func(v variable) bool { return v.name == prefix+word }) {
			return prefix + word
		}
		return word
	})
}

// capitals is a word that may be a variable's name.
var capitals = regexp.MustCompile(`\b[A-Z][A-Z0-9_]*\b`)

func (p *problems) error() error {
	if len(p.errs) == 0 {
		return nil
	}
	return &Error{p.errs}
}
