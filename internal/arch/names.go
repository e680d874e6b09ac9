package arch

import (
	"go/build/constraint"
	"path"
	"slices"
	"strings"
)

// systems holds operating systems and architectures that may be the last part of a file name. Go
// then builds the file only for them.
var systems = []string{"linux", "windows", "darwin", "amd64", "arm64"}

// variants holds words that may be the last part of a file name if the file has a build constraint.
var variants = []string{"other", "none", "unix", "asm", "nogpu", "unsupported"}

// misnamed reports whether the name of a source file has an underscore for no reason. The reasons
// are Go's rules for file names, and a build constraint. Otherwise the words of a name are joined
// without underscores.
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
