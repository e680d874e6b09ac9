package arch

import (
	"go/build/constraint"
	"path"
	"slices"
	"strings"
)

// systems are the words of Go's own rule for file names that this module uses.
var systems = []string{"linux", "windows", "darwin", "amd64", "arm64"}

// variants are the words for files that a build constraint chooses between.
var variants = []string{"other", "none", "unix", "asm", "nogpu", "unsupported"}

// misnamed reports whether the name of a source file has an underscore that neither Go gives a
// meaning nor a build constraint: what has a name of two words joins them.
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
