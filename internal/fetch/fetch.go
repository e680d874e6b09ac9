// Package fetch downloads published files: datasets and weights.
//
// A file is downloaded once. It is written under a temporary name (.part), checked against its
// digest, flushed to the disk and renamed. A file with its final name is therefore always complete.
// An interrupted download continues where it stopped, if the server still has the same file. A lock
// prevents two processes or goroutines from downloading one file at the same time. Without a
// network, or with FLAMBEAU_OFFLINE=1, the error says which file is missing, and where to put a
// copy. A file that was copied there by hand is accepted if its digest matches.
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
	// URLs are the addresses of the file, with http or https. The file must be the same at each
	// address. The addresses are tried in order.
	URLs []string
	// Name is the path of the file within the directory, with slashes. "" means the last element of
	// the first address.
	Name string
	// Digest is the expected digest of the file.
	Digest Digest
	// Max is the largest accepted size in bytes; 0 means 32 GiB.
	Max int64
}

// Options configure downloads. The zero value is suitable for most programs.
type Options struct {
	// Dir is the directory of downloaded files; "" means [CacheDir].
	Dir string
	// Progress, if not nil, is called from time to time on the goroutine that called [File]. done
	// is the number of downloaded bytes. total is the size of the file in bytes, or -1 if the
	// server does not send it.
	Progress func(done, total int64)
	// Header is sent with each request. An Authorization field is sent to the first host only.
	Header http.Header
	// Offline forbids use of the network, as FLAMBEAU_OFFLINE=1 does.
	Offline bool
	// Client is the HTTP client. nil means a client that uses the proxy variables of the
	// environment.
	Client *http.Client
	// Attempts is the number of successive requests that may fail without transferring any byte. 0
	// means 5.
	Attempts int
	// Wait is the pause after the first failure. It doubles with each further failure. 0 means half
	// a second.
	Wait time.Duration
	// Stall is the longest time for which a connection may transfer nothing. 0 means a minute.
	Stall time.Duration

	// open opens files; nil means os.OpenFile. Tests set it to simulate a full disk
	open func(name string, flag int) (file, error)
}

// file is the part of *os.File that a download needs.
type file interface {
	io.WriteCloser
	Sync() error
}

// CacheDir returns the directory for downloaded files of a kind, such as "data/mnist". It is below
// the directory that FLAMBEAU_CACHE names. If that is not set, it is below flambeau in the user's
// cache directory.
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

// File returns the path of the file that src describes. If the file is missing, or if its digest
// differs, File downloads it. Errors have the type *[Error].
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

// A job is the state of one call of File.
type job struct {
	Source
	Options
	path         string
	lastProgress time.Time // when Progress was called last
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

// address returns the first address of the file, without passwords and other secrets.
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
	// While this process waited for the lock, another one may have downloaded the file.
	if there, err = j.present(); err != nil {
		return j.fail(nil, err)
	}
	if there {
		return nil
	}
	return j.download(ctx)
}

// offline returns the error for a file that is missing or damaged and cannot be downloaded.
func (j *job) offline(cause error) error {
	if _, err := os.Stat(j.path); err == nil && !errors.Is(cause, ErrDigest) {
		cause = fmt.Errorf("%w, and the file that is there is another one (%s is wanted)", cause, j.Digest)
	}
	return j.fail(ErrOffline, cause)
}

// present reports whether the file is on the disk with the right contents. A small file is read
// each time. For a large file, and for a file whose digest the server sent, a record says that it
// was checked. Such a file is read again only if it has changed since.
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
		if !ok { // the file was copied by hand, so its expected digest is unknown
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

// recordFrom is a size in bytes. Files of at least this size get a record when they are checked, so
// that they are not read again.
const recordFrom = 32 << 20

// remember writes a record that the file was checked, if a record is useful. It returns no error:
// without the record the file is only read again.
func (j *job) remember(d Digest) {
	info, err := os.Stat(j.path)
	if err != nil || j.Digest.kind != hub && info.Size() < recordFrom {
		return
	}
	writeRecord(j.path+".fetched", record{URL: j.address(), Digest: d.String(), Size: info.Size(), Modified: info.ModTime().UnixNano()})
}

// lock waits for the exclusive right to download the file at path. The function unlock ends that
// right. If the process ends first, the operating system ends the right.
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
