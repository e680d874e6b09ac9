package cu

import (
	"errors"
	"strings"
	"testing"
)

func TestResults(t *testing.T) {
	seen := map[string]bool{}
	for r, text := range resultTexts {
		if r == 0 || !strings.HasPrefix(text.name, "CUDA_ERROR_") || text.text == "" || seen[text.name] {
			t.Errorf("row %d is wrong: %+v", r, text)
		}
		seen[text.name] = true
		if r.Sticky() != strings.Contains(text.text, "context is lost") && r != ErrECCUncorrectable && r != ErrNVLinkUncorrectable && r != ErrContained {
			t.Errorf("%s: sticky and its text disagree", r.Name())
		}
	}
	if s := ErrOutOfMemory.Error(); !strings.HasPrefix(s, "CUDA_ERROR_OUT_OF_MEMORY (2): ") {
		t.Error(s)
	}
	if s := Result(4711).Error(); !strings.HasPrefix(s, "CUDA_ERROR_4711 (4711)") {
		t.Error(s)
	}
	cause := errors.New("thread 3")
	e := &Error{Call: "cuCtxSynchronize", Result: ErrIllegalAddress, Detail: "stream 2", Log: "line 1\n", Cause: cause}
	if !errors.Is(e, ErrIllegalAddress) || !errors.Is(e, cause) || errors.Is(e, ErrLaunchFailed) {
		t.Error("errors.Is does not see through Error")
	}
	if s := e.Error(); !strings.HasPrefix(s, "cuCtxSynchronize (stream 2): CUDA_ERROR_ILLEGAL_ADDRESS (700)") || !strings.HasSuffix(s, ": thread 3\nline 1") {
		t.Error(s)
	}
}

func TestReasonsAreExplained(t *testing.T) {
	texts := map[string]Reason{}
	for r := LibraryNotFound; r <= UnsupportedPlatform; r++ {
		u := NewUnavailable(r, "found this")
		if u.Text == "" || u.Text == r.String() || strings.HasPrefix(r.String(), "Reason(") {
			t.Errorf("%v has no text", r)
		}
		if other, ok := texts[u.Text]; ok {
			t.Errorf("%v and %v have the same text", r, other)
		}
		texts[u.Text] = r
		if s := u.Error(); !strings.HasPrefix(s, "CUDA is not available: ") || !strings.Contains(s, "found this") {
			t.Error(s)
		}
	}
	u := NewUnavailable(LibraryNotFound, "")
	u.Tried = []string{"a: absent", "b: broken"}
	if s := u.Error(); !strings.HasSuffix(s, "\n\ttried a: absent\n\ttried b: broken") {
		t.Error(s)
	}
}
