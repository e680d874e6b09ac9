package fetch

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/internal/filelock"
)

// site is a server of one file. Its fields say how it misbehaves.
type site struct {
	*httptest.Server
	mu      sync.Mutex
	content []byte
	etag    string
	// for each request, the number of bytes after which the answer ends; a missing entry means the
	// whole answer
	cut      []int
	status   []int // for each request, the HTTP status of the answer; 0 means to send the file
	noRange  bool  // always send the whole file
	chunked  bool  // do not send the length
	header   map[string]string
	requests []http.Header
	before   func(request int)
}

func serve(t *testing.T, content []byte) *site {
	t.Helper()
	s := &site{content: content, etag: `"one"`}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	n := len(s.requests)
	if s.before != nil {
		s.before(n)
	}
	s.requests = append(s.requests, r.Header.Clone())
	content, etag, status, cut := s.content, s.etag, 0, -1
	if n < len(s.status) {
		status = s.status[n]
	}
	if n < len(s.cut) {
		cut = s.cut[n]
	}
	s.mu.Unlock()
	for k, v := range s.header {
		w.Header().Set(k, v)
	}
	if status != 0 {
		w.WriteHeader(status)
		return
	}
	if etag != "" {
		w.Header().Set("ETag", etag)
	}
	start := 0
	if rng := r.Header.Get("Range"); rng != "" && !s.noRange && (r.Header.Get("If-Range") == etag || r.Header.Get("If-Range") == "") {
		fmt.Sscanf(rng, "bytes=%d-", &start)
		if start >= len(content) {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, len(content)-1, len(content)))
	}
	if !s.chunked {
		w.Header().Set("Content-Length", fmt.Sprint(len(content)-start))
	}
	if start > 0 {
		w.WriteHeader(http.StatusPartialContent)
	}
	body := content[start:]
	if cut >= 0 && cut < len(body) {
		w.Write(body[:cut])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	w.Write(body)
}

func noise(n int) []byte {
	r, b := rand.New(rand.NewPCG(1, uint64(n))), make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func sum256(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func quick(t *testing.T) Options {
	return Options{Dir: t.TempDir(), Wait: time.Millisecond, Attempts: 4}
}

// fetchAndCheck fetches a file. The directory must then hold the file with this content, and no
// other file.
func fetchAndCheck(t *testing.T, src Source, o Options, content []byte) string {
	t.Helper()
	path, err := File(t.Context(), src, o)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("%s: %d bytes, %v", path, len(got), err)
	}
	if names := files(t, o.Dir); len(names) != 1 && !(len(names) == 2 && strings.HasSuffix(names[1], ".fetched")) {
		t.Fatalf("left behind: %q", names)
	}
	return path
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestFile(t *testing.T) {
	content := noise(300_000)
	m, g := md5.Sum(content), sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(content)), content...))
	inName, ok := DigestInName("net-" + sum256(content)[:8] + ".pth")
	if !ok {
		t.Fatal("no digest in the name")
	}
	for name, c := range map[string]struct {
		d      Digest
		header map[string]string
	}{
		"sha256":        {d: SHA256(strings.ToUpper(sum256(content)))},
		"sha256 prefix": {d: inName},
		"md5":           {d: MD5(hex.EncodeToString(m[:]))},
		"hub":           {d: HubDigest(), header: map[string]string{"X-Linked-Etag": `"` + sum256(content) + `"`}},
		"hub, small":    {d: HubDigest(), header: map[string]string{"X-Linked-Etag": `W/"` + hex.EncodeToString(g[:]) + `"`}},
	} {
		t.Run(name, func(t *testing.T) {
			s, o := serve(t, content), quick(t)
			s.header = c.header
			var done, total []int64
			o.Progress = func(d, n int64) { done, total = append(done, d), append(total, n) }
			src := Source{URLs: []string{s.URL + "/a/net.bin?x=1"}, Digest: c.d}
			path := fetchAndCheck(t, src, o, content)
			if filepath.Base(path) != "net.bin" {
				t.Fatal(path)
			}
			if !slices.IsSorted(done) || done[len(done)-1] != 300_000 || total[0] != 300_000 {
				t.Fatalf("progress %v of %v", done, total)
			}
			o.Offline = true
			fetchAndCheck(t, src, o, content)
			if len(s.requests) != 1 {
				t.Fatalf("%d requests", len(s.requests))
			}
			// A later change of the file must be detected.
			if err := os.WriteFile(path, content[:1000], 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := File(t.Context(), src, o); !errors.Is(err, ErrOffline) || !strings.Contains(err.Error(), "another one") {
				t.Fatal(err)
			}
			o.Offline = false
			fetchAndCheck(t, src, o, content)
		})
	}
}

// TestResume breaks off a download. The next request must continue where it stopped.
func TestResume(t *testing.T) {
	content := noise(500_000)
	s, o := serve(t, content), quick(t)
	s.cut = []int{100_000, 0, 1, 200_000, 5, 5, 5}
	fetchAndCheck(t, Source{URLs: []string{s.URL + "/f"}, Digest: SHA256(sum256(content))}, o, content)
	last := s.requests[len(s.requests)-1]
	if len(s.requests) != 8 || last.Get("If-Range") != `"one"` || !strings.HasPrefix(last.Get("Range"), "bytes=3") {
		t.Fatalf("%d requests, the last %v", len(s.requests), last)
	}
	if s.requests[0].Get("Accept-Encoding") != "identity" {
		t.Fatal("the server may compress")
	}

	// End a process in the middle of a download. The next process must continue the download.
	s.requests, s.cut = nil, []int{400_000}
	o = quick(t)
	o.Attempts = 1
	src := Source{URLs: []string{s.URL + "/f"}, Digest: SHA256(sum256(content))}
	if _, err := File(t.Context(), src, o); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if names := files(t, o.Dir); !slices.Equal(names, []string{"f.part", "f.part.json"}) {
		t.Fatalf("%q", names)
	}
	fetchAndCheck(t, src, o, content)
	if r := s.requests[1].Get("Range"); r != "bytes=400000-" {
		t.Fatalf("Range %q", r)
	}

	// End a process after the last byte and before the rename. The next process must send no
	// request.
	o = quick(t)
	s.requests = nil
	os.WriteFile(filepath.Join(o.Dir, "f.part"), content, 0o644)
	writeRecord(filepath.Join(o.Dir, "f.part.json"), record{URL: s.URL + "/f", Size: 500_000, ETag: `"one"`})
	fetchAndCheck(t, src, o, content)
	if len(s.requests) != 0 {
		t.Fatal("asked for nothing")
	}

	// Damage the partial file on the disk. One more download must repair it.
	damaged := bytes.Clone(content)
	damaged[7]++
	s.cut = nil
	os.Remove(filepath.Join(o.Dir, "f"))
	os.WriteFile(filepath.Join(o.Dir, "f.part"), damaged[:1000], 0o644)
	writeRecord(filepath.Join(o.Dir, "f.part.json"), record{URL: s.URL + "/f", Size: 500_000, ETag: `"one"`})
	fetchAndCheck(t, src, o, content)
	if len(s.requests) != 2 || s.requests[1].Get("Range") != "" {
		t.Fatalf("%v", s.requests)
	}
}

// TestPlainServers downloads from simple servers: some do not support ranges, others do not send a
// length or a version.
func TestPlainServers(t *testing.T) {
	content := noise(200_000)
	src := func(s *site) Source {
		return Source{URLs: []string{s.URL + "/f"}, Digest: SHA256(sum256(content))}
	}
	s := serve(t, content)
	s.noRange, s.cut = true, []int{150_000}
	fetchAndCheck(t, src(s), quick(t), content)

	s = serve(t, content)
	s.chunked, s.cut = true, []int{150_000, 20_000}
	fetchAndCheck(t, src(s), quick(t), content)

	s = serve(t, content)
	s.etag, s.cut = "", []int{150_000}
	fetchAndCheck(t, src(s), quick(t), content)
	if s.requests[1].Get("Range") != "bytes=150000-" {
		t.Fatal("a digest known beforehand is enough to go on")
	}
	s = serve(t, content)
	s.etag, s.cut = "", []int{150_000}
	s.header = map[string]string{"X-Linked-Etag": sum256(content)}
	hub := src(s)
	hub.Digest = HubDigest()
	fetchAndCheck(t, hub, quick(t), content)
	if s.requests[1].Get("Range") != "" {
		t.Fatal("halves of two versions")
	}
}

// TestChanged changes the file on the server between two requests. Parts of the two versions must
// not be joined.
func TestChanged(t *testing.T) {
	before, after := noise(200_000), noise(200_001)
	for _, ifRange := range []bool{true, false} {
		s := serve(t, before)
		s.cut = []int{120_000}
		s.before = func(n int) {
			if n == 1 {
				s.content, s.etag = after, `"two"`
			}
		}
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !ifRange { // a server without support for the header If-Range
				r.Header.Del("If-Range")
			}
			s.ServeHTTP(w, r)
		})
		s.Config.Handler = h
		fetchAndCheck(t, Source{URLs: []string{s.URL + "/f"}, Digest: SHA256(sum256(after))}, quick(t), after)
	}
}

func TestWrongDigest(t *testing.T) {
	content := noise(10_000)
	s, o := serve(t, content), quick(t)
	good, bad := SHA256(sum256(content)), SHA256(sum256(content[1:]))
	_, err := File(t.Context(), Source{URLs: []string{s.URL + "/f"}, Digest: bad}, o)
	var e *Error
	if !errors.Is(err, ErrDigest) || !errors.As(err, &e) || e.URL != s.URL+"/f" || !strings.Contains(err.Error(), sum256(content)) {
		t.Fatal(err)
	}
	if names := files(t, o.Dir); len(names) != 0 || len(s.requests) != 1 {
		t.Fatalf("%q, %d requests", names, len(s.requests))
	}
	// If the first address has wrong contents, File must use the next one.
	wrong := serve(t, content[1:])
	fetchAndCheck(t, Source{URLs: []string{wrong.URL + "/f", s.URL + "/f"}, Digest: good}, o, content)
	// HubDigest takes the digest from the server, but this server sends none.
	s.etag = ""
	if _, err := File(t.Context(), Source{URLs: []string{s.URL + "/g"}, Digest: HubDigest()}, o); !errors.Is(err, ErrNoDigest) {
		t.Fatal(err)
	}
}

func TestStatus(t *testing.T) {
	content := noise(1000)
	s := serve(t, content)
	src := Source{URLs: []string{s.URL + "/f"}, Digest: SHA256(sum256(content))}
	s.status = []int{503, 429, 500}
	fetchAndCheck(t, src, quick(t), content)
	s.requests, s.status = nil, []int{404, 404}
	o := quick(t)
	_, err := File(t.Context(), src, o)
	var status *StatusError
	if !errors.As(err, &status) || status.Code != 404 || len(s.requests) != 1 || errors.Is(err, ErrOffline) {
		t.Fatalf("%v after %d requests", err, len(s.requests))
	}
	s.requests, s.status = nil, []int{503, 503, 503, 503, 503}
	if _, err = File(t.Context(), src, o); len(s.requests) != 4 || !errors.As(err, &status) {
		t.Fatalf("%v after %d requests", err, len(s.requests))
	}
}

func TestTooLarge(t *testing.T) {
	content := noise(300_000)
	for _, chunked := range []bool{false, true} {
		s, o := serve(t, content), quick(t)
		s.chunked = chunked
		src := Source{URLs: []string{s.URL + "/f"}, Digest: SHA256(sum256(content)), Max: 200_000}
		if _, err := File(t.Context(), src, o); !errors.Is(err, ErrTooLarge) || len(files(t, o.Dir)) != 0 || len(s.requests) != 1 {
			t.Fatalf("%v, %q", err, files(t, o.Dir))
		}
		src.Max = 300_000
		fetchAndCheck(t, src, o, content)
	}
}

// fullDisk is a file on a disk with *room bytes of free space. All files of the disk share room.
type fullDisk struct {
	*os.File
	room *int
}

func (f fullDisk) Write(b []byte) (int, error) {
	n := min(len(b), *f.room)
	*f.room -= n
	n, err := f.File.Write(b[:n])
	if err == nil && n < len(b) {
		err = &os.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
	}
	return n, err
}

func TestDiskFull(t *testing.T) {
	content := noise(300_000)
	s, o := serve(t, content), quick(t)
	room := 100_000
	o.open = func(name string, flag int) (file, error) {
		f, err := os.OpenFile(name, flag, 0o644)
		return fullDisk{f, &room}, err
	}
	src := Source{URLs: []string{s.URL + "/f", s.URL + "/f"}, Digest: SHA256(sum256(content))}
	_, err := File(t.Context(), src, o)
	if !errors.Is(err, syscall.ENOSPC) || len(s.requests) != 1 || !strings.Contains(err.Error(), "goes on from it") {
		t.Fatalf("%v after %d requests", err, len(s.requests))
	}
	room = 1 << 30
	fetchAndCheck(t, src, o, content)
	if r := s.requests[1].Get("Range"); r != "bytes=100000-" {
		t.Fatalf("Range %q", r)
	}
}

func TestOffline(t *testing.T) {
	content := noise(1000)
	s, o := serve(t, content), quick(t)
	src := Source{URLs: []string{s.URL + "/f"}, Name: "sub/f", Digest: SHA256(sum256(content))}
	want := filepath.Join(o.Dir, "sub", "f")
	refuse := func() {
		t.Helper()
		_, err := File(t.Context(), src, o)
		var e *Error
		if !errors.Is(err, ErrOffline) || !errors.As(err, &e) || e.Path != want ||
			!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), s.URL+"/f") {
			t.Fatal(err)
		}
	}
	t.Setenv("FLAMBEAU_OFFLINE", "1")
	refuse()
	if len(files(t, o.Dir)) != 0 {
		t.Fatal("something was made")
	}
	t.Setenv("FLAMBEAU_OFFLINE", "0")
	s.Close() // nothing listens at this address any more
	refuse()
	// A file that was copied by hand must be accepted, even if the digest should come from the
	// server.
	if err := os.WriteFile(want, content, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, d := range []Digest{src.Digest, HubDigest()} {
		src.Digest = d
		if path, err := File(t.Context(), src, o); err != nil || path != want {
			t.Fatal(path, err)
		}
	}
}

// TestConcurrent fetches one file from many goroutines. Only one of them must download it.
func TestConcurrent(t *testing.T) {
	content := noise(400_000)
	s, o := serve(t, content), quick(t)
	s.cut = []int{100_000}
	src := Source{URLs: []string{s.URL + "/f"}, Digest: SHA256(sum256(content))}
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			if _, err := File(context.Background(), src, o); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	fetchAndCheck(t, src, o, content)
	if len(s.requests) != 2 {
		t.Fatalf("%d requests", len(s.requests))
	}
}

// TestLock takes the lock from many goroutines, which create and remove the lock file. Only one at
// a time may have the lock.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	var held atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				unlock, err := lock(context.Background(), path)
				if err != nil {
					t.Error(err)
					return
				}
				if held.Add(1) != 1 {
					t.Error("two at a time")
				}
				held.Add(-1)
				unlock()
			}
		})
	}
	wg.Wait()
	unlock, err := lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := lock(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestCancelAndStall(t *testing.T) {
	content := noise(300_000)
	s, o := serve(t, content), quick(t)
	inner := s.Config.Handler
	var calls atomic.Int32
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 { // the first answer sends some bytes, then nothing
			w.Header().Set("ETag", `"one"`)
			w.Header().Set("Content-Length", "300000")
			w.Write(content[:100_000])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		inner.ServeHTTP(w, r)
	})
	src := Source{URLs: []string{s.URL + "/f"}, Digest: SHA256(sum256(content))}
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(done, _ int64) {
		if done > 0 || size(filepath.Join(o.Dir, "f.part")) > 0 {
			cancel()
		}
	}
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := File(ctx, src, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	calls.Store(0)
	o.Progress, o.Dir, o.Stall = nil, t.TempDir(), 100*time.Millisecond
	fetchAndCheck(t, src, o, content)
	if calls.Load() != 2 {
		t.Fatalf("%d requests", calls.Load())
	}
}

// TestNoLocks fetches on a system without locks. The error must say what to do, and no file may
// remain.
func TestNoLocks(t *testing.T) {
	filelock.None.Store(true)
	defer filelock.None.Store(false)
	content := noise(1000)
	s, o := serve(t, content), quick(t)
	_, err := File(t.Context(), Source{URLs: []string{s.URL + "/f"}, Digest: SHA256(sum256(content))}, o)
	var e *Error
	if !errors.Is(err, errors.ErrUnsupported) || !errors.As(err, &e) || !strings.Contains(err.Error(), "set FLAMBEAU_CACHE") || len(files(t, o.Dir)) != 0 {
		t.Errorf("%v, %q", err, files(t, o.Dir))
	}
}
