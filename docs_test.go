package module_test

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestPagesLeadSomewhere follows the links from the pages of this module to other
// files of it, and to their headings.
func TestPagesLeadSomewhere(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, page := range pages(t) {
		for _, found := range link.FindAllStringSubmatch(withoutCode(read(t, page)), -1) {
			target, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			file := path.Join(path.Dir(page), target)
			if target == "" {
				file = page
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s: %v", page, found[1], err)
				continue
			}
			if anchor != "" && strings.HasSuffix(file, ".md") && !anchors(t, file)[anchor] {
				t.Errorf("%s links to %s, and %s has no such heading", page, found[1], file)
			}
		}
	}
}

// TestPagesNameTestsThatExist looks for the tests that pages name as proof.
func TestPagesNameTestsThatExist(t *testing.T) {
	t.Parallel()
	exists := make(map[string]bool)
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for name := range sources(t) {
		if strings.HasSuffix(name, "_test.go") {
			for _, found := range declared.FindAllStringSubmatch(read(t, name), -1) {
				exists[found[1]] = true
			}
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z0-9]\\w+)(?:/[^`]*)?`")
	for _, page := range pages(t) {
		for _, found := range named.FindAllStringSubmatch(read(t, page), -1) {
			if !exists[found[1]] {
				t.Errorf("%s names %s, which does not exist", page, found[1])
			}
		}
	}
}

// pages are the documents for people.
func pages(t *testing.T) []string {
	t.Helper()
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/*.md", "examples/*/*.md"} {
		found, err := fs.Glob(os.DirFS("."), pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	if len(pages) < 10 {
		t.Errorf("the test looked at the wrong files: %v", pages)
	}
	return pages
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// withoutCode leaves out what is no text: brackets are something else there.
func withoutCode(text string) string {
	text = regexp.MustCompile("(?ms)^ *```.*?^ *```").ReplaceAllString(text, "")
	return regexp.MustCompile("`[^`\n]*`").ReplaceAllString(text, "x")
}

// anchors are the headings of a page, as links name them.
func anchors(t *testing.T, file string) map[string]bool {
	t.Helper()
	fenced := regexp.MustCompile("(?ms)^```.*?^```")
	unsaid := regexp.MustCompile(`[^\pL\pN _-]`)
	found := make(map[string]bool)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(fenced.ReplaceAllString(read(t, file), ""), -1) {
		found[strings.ReplaceAll(unsaid.ReplaceAllString(strings.ToLower(heading[1]), ""), " ", "-")] = true
	}
	return found
}
