package safetensors

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Half a surrogate pair in a name, in the metadata or in an index is a typed error with its offset,
// so that a name never changes silently. A complete pair is accepted, and an escaped backslash does
// not begin a surrogate.
func TestLoneSurrogate(t *testing.T) {
	for name, lone := range map[string]string{
		`a\ud800`: `\ud800`, `\uDFFFb`: `\uDFFF`, `\ud800\ud83d\ude00`: `\ud800`, `\ud83d\u0041`: `\ud83d`, `\ud83dA`: `\ud83d`, `\\\ud800`: `\ud800`,
		`\ud83d\ude00`: "", `\\ud800`: "", `\u00e9`: "", `\\\\\"\ud83d\ude00\\`: "",
	} {
		for what, header := range map[string]string{
			"a name":       `{"` + name + `":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`,
			"the metadata": `{"__metadata__":{"k":"` + name + `"},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`,
		} {
			path := filepath.Join(t.TempDir(), "m.safetensors")
			if err := os.WriteFile(path, file(header, 1), 0o600); err != nil {
				t.Fatal(err)
			}
			check(t, what+" "+name, path, lone, int64(8+strings.Index(header, lone)))
		}
		index := `{"weight_map":{"` + name + `":"m.safetensors"}}`
		path := filepath.Join(t.TempDir(), "m.safetensors.index.json")
		if err := os.WriteFile(path, []byte(index), 0o600); err != nil {
			t.Fatal(err)
		}
		if lone != "" {
			check(t, "an index with "+name, path, lone, int64(strings.Index(index, lone)))
		}
	}
}

func check(t *testing.T, what, path, lone string, at int64) {
	t.Helper()
	_, _, err := Load(path)
	var e *Error
	if lone == "" {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	} else if !errors.As(err, &e) || e.Path != path || e.Offset != at || !strings.Contains(err.Error(), "holds "+lone+", half of a character") {
		t.Errorf("%s: %v", what, err)
	}
}
