package models

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A hub may send a web page instead of a file, or fewer bytes than announced, or redirect
// endlessly. In each case, Pretrained returns an error that names the address, without a long wait,
// and leaves no file under the requested name.
func TestHostileHub(t *testing.T) {
	t.Setenv("FLAMBEAU_OFFLINE", "")
	digest := `"` + strings.Repeat("ab", 32) + `"`
	defer func(h string, p time.Duration) { hub, pause = h, p }(hub, pause)
	for name, answer := range map[string]http.HandlerFunc{
		"a page": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>sign in</html>") },
		"another digest": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Linked-Etag", digest)
			fmt.Fprint(w, "<html>")
		},
		"a digest of air": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Linked-Etag", `"abc"`)
			fmt.Fprint(w, "x")
		},
		"too short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Linked-Etag", digest)
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "short")
		},
		"a circle": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) },
		"an abyss": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path+"x", http.StatusFound) },
	} {
		server := httptest.NewServer(answer)
		hub, pause = server.URL+"/", time.Millisecond
		dir := t.TempDir()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		_, err := Pretrained(ctx, "gpt2", dir)
		var e *DownloadError
		if !errors.As(err, &e) || ctx.Err() != nil || !strings.Contains(err.Error(), server.URL) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "openai-community", "gpt2", "model.safetensors")); err == nil {
			t.Errorf("%s: a file stays", name)
		}
		cancel()
		server.Close()
	}
}
