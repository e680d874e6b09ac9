package fetch

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// TestMain fetches, in a child process, the file that the environment names.
func TestMain(m *testing.M) {
	if addr := os.Getenv("FETCH_TEST_URL"); addr != "" {
		src := Source{URLs: []string{addr}, Digest: SHA256(os.Getenv("FETCH_TEST_SHA256"))}
		if _, err := File(context.Background(), src, Options{Dir: os.Getenv("FETCH_TEST_DIR"), Wait: time.Millisecond}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(t *testing.T, addr, dir string, content []byte) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe)
	c.Env = append(os.Environ(), "FETCH_TEST_URL="+addr, "FETCH_TEST_DIR="+dir, "FETCH_TEST_SHA256="+sum256(content))
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestProcesses fetches one file from several processes. Only one must download it. If that one is
// killed in the middle, the next must get the lock and continue the partial download.
func TestProcesses(t *testing.T) {
	content := noise(300_000)
	s, dir := serve(t, content), t.TempDir()
	inner := s.Config.Handler
	var asked atomic.Int32
	half := make(chan bool)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// the first answer sends half of the file, and then nothing until the process ends
		if asked.Add(1) == 1 {
			w.Header().Set("ETag", `"one"`)
			w.Header().Set("Content-Length", strconv.Itoa(len(content)))
			w.Write(content[:150_000])
			w.(http.Flusher).Flush()
			close(half)
			<-r.Context().Done()
			return
		}
		inner.ServeHTTP(w, r)
	}))
	defer front.Close()
	first := child(t, front.URL+"/f", dir, content)
	<-half
	for size(filepath.Join(dir, "f.part")) < 150_000 {
		time.Sleep(time.Millisecond)
	}
	others := []*exec.Cmd{child(t, front.URL+"/f", dir, content), child(t, front.URL+"/f", dir, content)}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.Wait()
	for _, c := range others {
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
	fetchAndCheck(t, Source{URLs: []string{front.URL + "/f"}, Digest: SHA256(sum256(content))}, Options{Dir: dir}, content)
	if n := asked.Load(); n != 2 || s.requests[0].Get("Range") != "bytes=150000-" {
		t.Errorf("%d requests, %v", n, s.requests)
	}
}
