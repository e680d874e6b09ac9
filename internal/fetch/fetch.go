// Package fetch brings published files onto this machine: data sets and weights.
//
// A file is fetched once. It arrives under another name (.part), is checked against its digest,
// flushed to the disk and renamed, so that a file under its own name is whole. What was interrupted
// goes on where it ended, if the server still holds the same file. A lock keeps two processes, and
// two goroutines, from fetching one file at a time. Without a network, or with FLAMBEAU_OFFLINE=1,
// the error says which file to put where: a file that was brought there by hand is as good, once
// its digest agrees.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/flambeau-go/flambeau/internal/filelock"
)

// A Source is a published file.
type Source struct {
	// URLs say where it is, over http or https. They hold the same bytes; the first that delivers
	// is taken.
	URLs []string
	// Name is the file's name below the directory, with slashes; "": the last element of the first
	// address.
	Name string
	// Digest is what the bytes must have.
	Digest Digest
	// Max is the most bytes that are taken; 0: 32 GiB.
	Max int64
}

// Options set how files are fetched. The zero value is the ordinary way.
type Options struct {
	// Dir is where files go; "": [CacheDir].
	Dir string
	// Progress, if not nil, is called now and then with the bytes that are here and all of them, or
	// -1 where the server does not say. It is called on the goroutine that called [File].
	Progress func(done, total int64)
	// Header is sent with each request; an Authorization goes to the first host alone.
	Header http.Header
	// Offline forbids the network, as FLAMBEAU_OFFLINE=1 does.
	Offline bool
	// Client is the HTTP client; nil: one that obeys the proxy variables of the environment.
	Client *http.Client
	// Attempts is how often in a row a request may fail without bringing anything; 0: 5.
	Attempts int
	// Wait is the pause after the first failure, which doubles with each; 0: half a second.
	Wait time.Duration
	// Stall is how long a connection may be silent; 0: a minute.
	Stall time.Duration

	open func(name string, flag int) (file, error) // nil: os.OpenFile; tests put a full disk here
}

// file is what a download is written to.
type file interface {
	io.WriteCloser
	Sync() error
}

// CacheDir returns the directory for fetched files of a kind ("data/mnist"): below FLAMBEAU_CACHE,
// or below flambeau in the user's cache directory.
func CacheDir(kind string) (string, error) {
	base := os.Getenv("FLAMBEAU_CACHE")
	if base == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("fetch: there is no cache directory: %w; set FLAMBEAU_CACHE to a directory", err)
		}
		base = filepath.Join(user, "flambeau")
	}
	return filepath.Join(base, filepath.FromSlash(kind)), nil
}

// File returns the path of the file that src describes, after fetching it if it is not there. One
// that is there with another digest is replaced. Errors are of type *[Error].
func File(ctx context.Context, src Source, o Options) (string, error) {
	j, err := newJob(src, o)
	if err != nil {
		return "", err
	}
	if err := j.run(ctx); err != nil {
		return "", err
	}
	return j.path, nil
}

// A job is one call of File.
type job struct {
	Source
	Options
	path string
	last time.Time // of the last call of Progress
}

func newJob(src Source, o Options) (*job, error) {
	j := &job{Source: src, Options: o}
	bad := func(format string, args ...any) (*job, error) {
		return nil, &Error{URL: j.address(), Path: j.path, Err: fmt.Errorf(format, args...)}
	}
	if len(src.URLs) == 0 {
		return bad("there is no address")
	}
	for _, addr := range src.URLs {
		u, err := url.Parse(addr)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return bad("%q is not an address that begins with http:// or https://", addr)
		}
		if j.Name == "" {
			j.Name = path.Base(u.Path)
		}
	}
	if !filepath.IsLocal(filepath.FromSlash(j.Name)) || j.Name == "." {
		return bad("%q is not a file name", j.Name)
	}
	if j.Digest.kind == none {
		return bad("%w", ErrNoDigest)
	}
	if err := j.Digest.valid(); err != nil {
		return bad("%w", err)
	}
	if j.Max == 0 {
		j.Max = 32 << 30
	}
	if j.Dir == "" {
		dir, err := CacheDir("files")
		if err != nil {
			return bad("%w", err)
		}
		j.Dir = dir
	}
	j.path = filepath.Join(j.Dir, filepath.FromSlash(j.Name))
	if j.Client == nil {
		j.Client = &http.Client{}
	}
	if j.Attempts <= 0 {
		j.Attempts = 5
	}
	if j.Wait <= 0 {
		j.Wait = time.Second / 2
	}
	if j.Stall <= 0 {
		j.Stall = time.Minute
	}
	if j.open == nil {
		j.open = func(name string, flag int) (file, error) { return os.OpenFile(name, flag, 0o644) }
	}
	j.Offline = j.Offline || os.Getenv("FLAMBEAU_OFFLINE") != "" && os.Getenv("FLAMBEAU_OFFLINE") != "0"
	return j, nil
}

// address is the first address without what is secret in it.
func (j *job) address() string {
	if len(j.URLs) == 0 {
		return ""
	}
	return redact(j.URLs[0])
}

func redact(addr string) string {
	u, err := url.Parse(addr)
	if err != nil {
		return "?"
	}
	return u.Redacted()
}

func (j *job) fail(kind, err error) error {
	return &Error{URL: j.address(), Path: j.path, Kind: kind, Err: err}
}

func (j *job) run(ctx context.Context) error {
	there, err := j.present()
	if err != nil {
		return j.fail(nil, err)
	}
	if there {
		return nil
	}
	if j.Offline {
		return j.offline(errors.New("the network is not to be used"))
	}
	if err := os.MkdirAll(filepath.Dir(j.path), 0o755); err != nil {
		return j.fail(nil, err)
	}
	unlock, err := lock(ctx, j.path+".lock")
	if err != nil {
		return j.fail(nil, err)
	}
	defer unlock()
	// Another process may have brought it while this one waited.
	if there, err = j.present(); err != nil {
		return j.fail(nil, err)
	}
	if there {
		return nil
	}
	return j.download(ctx)
}

// offline is the error for a file that is not here and cannot be had; it says what is wrong with
// the one that is here.
func (j *job) offline(cause error) error {
	if _, err := os.Stat(j.path); err == nil && !errors.Is(cause, ErrDigest) {
		cause = fmt.Errorf("%w, and the file that is there is another one (%s is wanted)", cause, j.Digest)
	}
	return j.fail(ErrOffline, cause)
}

// present reports whether the file is here and is the one that is wanted. Small files are read each
// time; of large ones, and of those whose digest the server gave, a record tells that they were
// read and have not changed since.
func (j *job) present() (bool, error) {
	info, err := os.Stat(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() {
		return false, fmt.Errorf("%s is not a file", j.path)
	}
	r, ok := readRecord(j.path + ".fetched")
	want := j.Digest
	if want.kind == hub {
		if !ok { // brought by hand: there is nothing to compare it with
			return true, nil
		}
		if want, err = parseDigest(r.Digest); err != nil {
			return false, nil
		}
	}
	if ok && r.Digest == want.String() && r.Size == info.Size() && r.Modified == info.ModTime().UnixNano() {
		return true, nil
	}
	if err := want.check(j.path); err != nil {
		if errors.Is(err, ErrDigest) {
			return false, nil
		}
		return false, err
	}
	j.remember(want)
	return true, nil
}

// recordFrom is the size above which a file is not read again each time.
const recordFrom = 32 << 20

// remember writes the record of the file, where one is of use. Without it the file is read again:
// not an error.
func (j *job) remember(d Digest) {
	info, err := os.Stat(j.path)
	if err != nil || j.Digest.kind != hub && info.Size() < recordFrom {
		return
	}
	writeRecord(j.path+".fetched", record{URL: j.address(), Digest: d.String(), Size: info.Size(), Modified: info.ModTime().UnixNano()})
}

// lock waits for the only right to fetch a file and returns what gives it back. The operating
// system gives it back too when the process ends, however it ends.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	wait := 5 * time.Millisecond
	for {
		f, err := filelock.Open(path, 0o644)
		if err != nil {
			return nil, err
		}
		err = filelock.Try(f)
		if err != nil && err != filelock.ErrHeld {
			filelock.Remove(f, path)
			return nil, fmt.Errorf("what is fetched cannot be locked here: %w; set FLAMBEAU_CACHE to a directory of a file system that has locks", err)
		}
		if err == nil && filelock.InPlace(f, path) {
			return func() { filelock.Remove(f, path) }, nil
		}
		f.Close()
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		wait = min(2*wait, 250*time.Millisecond)
	}
}
