package models

import (
	"strings"
	"testing"
)

// Every entry has its own repository, the files of a tokenizer, and a model.
func TestPublished(t *testing.T) {
	if len(published) != 5 {
		t.Errorf("%d entries", len(published))
	}
	for name, p := range published {
		if owner, repo, ok := strings.Cut(p.repository, "/"); !ok || owner == "" || repo != name || len(p.tokenizer) == 0 || p.model == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
