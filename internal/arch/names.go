package arch

import (
	"go/build/constraint"
	"path"
	"slices"
	"strings"
)

// systems are the operating systems and architectures in this module's file names to which Go gives
// a meaning.
var systems = []string{"linux", "windows", "darwin", "amd64", "arm64"}

// variants are the words in names of files that a build constraint chooses between.
var variants = []string{"other", "none", "unix", "asm", "nogpu", "unsupported"}

// misnamed reports whether a source file's name has an underscore without a reason. Go's own rule
// or a build constraint is a reason. A name of two words is written without an underscore.
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
