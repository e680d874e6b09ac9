package arch

import (
	"go/build/constraint"
	"path"
	"slices"
	"strings"
)

// systems holds the operating systems and architectures that may end a file name of this module,
// because Go then builds the file only for them.
var systems = []string{"linux", "windows", "darwin", "amd64", "arm64"}

// variants holds words that may end a file's name if a build constraint selects the file.
var variants = []string{"other", "none", "unix", "asm", "nogpu", "unsupported"}

// misnamed reports whether a source file's name has an underscore without a reason. A reason is
// Go's own rule for file names, or a build constraint. A name of two words must be written without
// an underscore.
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
