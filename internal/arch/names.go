package arch

import (
	"go/build/constraint"
	"path"
	"slices"
	"strings"
)

// systems holds operating systems and architectures. A file whose name ends in one of them is built
// only for that system or architecture.
var systems = []string{"linux", "windows", "darwin", "amd64", "arm64"}

// variants holds words that the name of a file with a build constraint may end in.
var variants = []string{"other", "none", "unix", "asm", "nogpu", "unsupported"}

// misnamed reports whether the name of a source file has an unnecessary underscore. Go's rules for
// file names may require an underscore, and a build constraint permits one. In all other names, the
// words are joined without underscores.
func misnamed(name string, text []byte) bool {
	stem, test := strings.CutSuffix(strings.TrimSuffix(path.Base(name), path.Ext(name)), "_test")
	if test {
		stem = strings.TrimPrefix(stem, "example_")
	}
	parts := strings.Split(stem, "_")
	return slices.ContainsFunc(parts[1:], func(word string) bool {
		return !slices.Contains(systems, word) && !(slices.Contains(variants, word) && constrained(text))
	})
}

// constrained reports whether a file has a build constraint.
func constrained(text []byte) bool {
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); constraint.IsGoBuild(line) {
			return true
		} else if strings.HasPrefix(line, "package ") {
			break
		}
	}
	return false
}
