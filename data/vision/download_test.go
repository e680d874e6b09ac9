package vision

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/tensor"
)

// Download fetches the files of a set and checks them, and the set can be read. A second call makes
// no request.
func TestDownload(t *testing.T) {
	parts := map[string]*tensor.Tensor{
		"train-images-idx3-ubyte.gz": tensor.From(make([]uint8, 24), 6, 2, 2), "train-labels-idx1-ubyte.gz": tensor.From([]uint8{0, 1, 2, 3, 4, 5}),
		"t10k-images-idx3-ubyte.gz": tensor.From(make([]uint8, 8), 2, 2, 2), "t10k-labels-idx1-ubyte.gz": tensor.From([]uint8{0, 1}),
	}
	server, content := t.TempDir(), published{name: "small"}
	for _, name := range []string{"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"} {
		if err := SaveIDX(filepath.Join(server, name), parts[name]); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(server, name))
		if err != nil {
			t.Fatal(err)
		}
		sum := md5.Sum(b)
		content.files = append(content.files, [2]string{name, hex.EncodeToString(sum[:])})
	}
	asked := 0
	handler := http.FileServer(http.Dir(server))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		handler.ServeHTTP(w, r)
	}))
	defer web.Close()
	content.at = []string{web.URL + "/"}
	defer func(old []published) { sets = old }(sets)
	sets = append(sets[:len(sets):len(sets)], content)

	t.Setenv("FLAMBEAU_CACHE", t.TempDir())
	told := map[string]int64{}
	for range 2 {
		dir, err := Download(t.Context(), "small", "", func(file string, done, _ int64) { told[file] = done })
		if err != nil || !strings.HasSuffix(dir, filepath.Join("data", "small")) {
			t.Fatal(dir, err)
		}
		if s, err := MNIST(dir, true); err != nil || s.Len() != 6 {
			t.Fatal(s, err)
		}
	}
	if asked != 4 || len(told) != 4 || told["t10k-labels-idx1-ubyte.gz"] == 0 {
		t.Fatalf("asked %d times, told %v", asked, told)
	}
	// Download rejects a file that differs from the published one.
	if err := os.WriteFile(filepath.Join(server, "train-labels-idx1-ubyte.gz"), bytes.Repeat([]byte{1}, 40), 0o644); err != nil {
		t.Fatal(err)
	}
	var e *DownloadError
	if _, err := Download(t.Context(), "small", t.TempDir(), nil); !errors.As(err, &e) || !strings.HasSuffix(e.Path, "train-labels-idx1-ubyte.gz") {
		t.Fatal(err)
	}
}

func TestOffline(t *testing.T) {
	t.Setenv("FLAMBEAU_OFFLINE", "1")
	dir := t.TempDir()
	for _, name := range Published() {
		_, err := Download(t.Context(), name, dir, nil)
		var e *DownloadError
		if !errors.Is(err, ErrOffline) || !errors.As(err, &e) || filepath.Dir(e.Path) != dir || !strings.Contains(err.Error(), e.Path) {
			t.Fatal(err)
		}
	}
	if _, err := Download(t.Context(), "no-such-set", dir, nil); err == nil || !strings.Contains(err.Error(), "fashion-mnist") {
		t.Fatal(err)
	}
}
