package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"github.com/flambeau-go/flambeau/internal/atomicfile"
	"github.com/flambeau-go/flambeau/tensor"
)

// A Best says whether smaller or greater metrics are better.
type Best uint8

// These are the values of Best.
const (
	NoBest Best = iota // no checkpoint is the best
	Least              // smaller metrics are better, as for a loss
	Most               // greater metrics are better, as for an accuracy
)

// Config configures a [Store].
type Config struct {
	Dir  string // directory, which Open creates if necessary
	Keep int    // number of newest checkpoints to keep; 0 means 3
	Best Best   // which metrics are better; the best checkpoint is kept too

	// Done is called after every save, by the goroutine that wrote the file. It may be nil. It may
	// call the methods of [Saved], but no methods of the Store, because those wait for Done.
	Done func(Saved)
}

// Saved describes a save that has ended. Call its methods only within [Config].Done.
type Saved struct {
	Path string
	Info Info
	Err  error // why there is no new file; older files are unchanged

	store *Store
}

// Best returns the result of [Store.Best] after this save.
func (s Saved) Best() (Entry, bool) { return s.store.bestEntry() }

// Load returns the result of [Store.Load] after this save.
func (s Saved) Load() (*Loaded, error) { return s.store.load() }

// Errors returns the errors of this save and of earlier saves since the last Wait. The next Wait
// does not return these errors again.
func (s Saved) Errors() error { return s.store.failures() }

// A Store is a directory of checkpoints of one training. From Open to Close no other store can use
// the directory, in this process or another. If the process ends for any reason, the directory is
// released too. The functions [Load], [List] and [Latest] also work on a directory in use. Only one
// goroutine may call a Store's methods. Another goroutine writes the files, one at a time.
type Store struct {
	c       Config
	removed []string
	lock    *lock

	busy    chan struct{} // has a token while a file is being written
	mu      sync.Mutex
	list    []Entry // known usable checkpoints
	damaged []Entry
	errs    []error
	closed  bool

	write func(*snapshot, string) error
}

// An Entry is a checkpoint in a directory.
type Entry struct {
	Path string
	Info Info
}

var fileName = regexp.MustCompile(`^step-(\d{9,18})\.safetensors$`)

// PathOf returns the path that a store in dir uses for the checkpoint of a step.
func PathOf(dir string, step int) string {
	return filepath.Join(dir, fmt.Sprintf("step-%09d.safetensors", step))
}

// Open opens a directory, and creates it if necessary. It removes temporary files that killed
// processes have left behind. The error is an *[Error]. If another training uses the directory, the
// error wraps an *[InUseError]. On file systems without locks, Open cannot detect this, and
// [Store.Unlocked] returns the reason.
func Open(c Config) (*Store, error) {
	if c.Dir == "" {
		return nil, &Error{Msg: "no directory is given"}
	}
	if c.Keep < 0 || c.Best > Most {
		return nil, &Error{Path: c.Dir, Msg: fmt.Sprintf("Keep %d, Best %d are no settings", c.Keep, c.Best)}
	}
	if c.Keep == 0 {
		c.Keep = 3
	}
	if err := os.MkdirAll(c.Dir, 0o777); err != nil {
		return nil, &Error{Path: c.Dir, Err: err}
	}
	lock := lockOf(c.Dir)
	if err := lock.acquire(patience); err != nil {
		return nil, &Error{Path: c.Dir, Err: err}
	}
	removed, err := atomicfile.Clean(c.Dir)
	if err != nil {
		lock.release()
		return nil, &Error{Path: c.Dir, Msg: "removing what killed saves have left", Err: err}
	}
	list, err := List(c.Dir)
	if err != nil {
		lock.release()
		return nil, err
	}
	return &Store{c: c, removed: removed, lock: lock, list: list, busy: make(chan struct{}, 1), write: (*snapshot).write}, nil
}

// Removed returns the paths of temporary files that Open has removed. Processes that were killed
// during a save had left them behind.
func (s *Store) Removed() []string { return s.removed }

// Unlocked returns the reason why the directory could not be locked, for example that a network
// file system has no locks. It returns nil if the directory is locked. Without a lock, a second
// training in the directory is not detected, and both would remove each other's files.
func (s *Store) Unlocked() error { return s.lock.unavailable }

// Save copies a tree to host memory and starts to write it to a file named by info.Step. When Save
// returns, the training may continue and change the tensors. If the previous save is still being
// written, Save waits for it. Save returns an error if the tree cannot be copied. An error of
// writing is returned by Wait or Close, and passed to Config.Done. After a file is written, the
// store removes files that it need not keep. It always keeps the new file.
func (s *Store) Save(tree map[string]any, info Info) error {
	if s.closed {
		return &Error{Path: s.c.Dir, Msg: "the store is closed"}
	}
	if info.Step < 0 || info.Epoch < 0 {
		return &Error{Path: s.c.Dir, Msg: fmt.Sprintf("step %d, epoch %d", info.Step, info.Epoch)}
	}
	path := PathOf(s.c.Dir, info.Step)
	snap, err := copyTree(tree, info)
	if err != nil {
		return withPath(path, err)
	}
	s.busy <- struct{}{}
	go func() {
		defer func() { <-s.busy }()
		err := s.lock.verify()
		if err == nil {
			err = s.write(snap, path)
		}
		err = withPath(path, err)
		s.mu.Lock()
		if err != nil {
			s.errs = append(s.errs, err)
		} else {
			s.list = slices.DeleteFunc(s.list, func(e Entry) bool { return e.Path == path })
			s.list = append(s.list, Entry{path, info})
			if err := s.prune(path, info.Step); err != nil {
				s.errs = append(s.errs, err)
			}
		}
		s.mu.Unlock()
		if s.c.Done != nil {
			s.c.Done(Saved{path, info, err, s})
		}
	}()
	return nil
}

// prune removes old files. It keeps the newest files, the best file, and the file just written. The
// file just written may not be one of the newest: another training may have left files of later
// steps in the directory. prune also removes damaged files that Load has skipped, if they are of
// earlier steps than the argument step. The caller has locked s.mu.
func (s *Store) prune(written string, step int) error {
	slices.SortFunc(s.list, func(a, b Entry) int { return a.Info.Step - b.Info.Step })
	best, newest := s.best(), len(s.list)-s.c.Keep
	var err error
	remove := func(e Entry) bool {
		if e := atomicfile.Remove(e.Path); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, &Error{Path: s.c.Dir, Msg: "what is no longer needed cannot be removed", Err: e})
			return false
		}
		return true
	}
	kept := make([]Entry, 0, len(s.list))
	for i, e := range s.list {
		if i >= newest || e.Path == best || e.Path == written || !remove(e) {
			kept = append(kept, e)
		}
	}
	s.list = kept
	s.damaged = slices.DeleteFunc(s.damaged, func(e Entry) bool { return e.Info.Step < step && remove(e) })
	return err
}

// best returns the path of the checkpoint with the best metric, or "" if there is none. Among equal
// metrics the first one counts.
func (s *Store) best() string {
	at := -1
	for i, e := range s.list {
		m := e.Info.Metric
		if s.c.Best == NoBest || math.IsNaN(m) {
			continue
		}
		if at < 0 || s.c.Best == Least && m < s.list[at].Info.Metric || s.c.Best == Most && m > s.list[at].Info.Metric {
			at = i
		}
	}
	if at < 0 {
		return ""
	}
	return s.list[at].Path
}

// Best returns the checkpoint with the best metric among those in the directory, as [Config].Best
// defines it. ok is false if there is no such checkpoint, and always with [NoBest]. Best waits for
// the save in progress.
func (s *Store) Best() (Entry, bool) {
	s.drain()
	return s.bestEntry()
}

func (s *Store) bestEntry() (Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := s.best()
	for _, e := range s.list {
		if e.Path == path {
			return e, true
		}
	}
	return Entry{}, false
}

// drain waits until the save in progress and the call of Done have ended.
func (s *Store) drain() {
	s.busy <- struct{}{}
	<-s.busy
}

// Wait waits for the save in progress. It returns the errors of this save and of earlier saves
// since the last Wait.
func (s *Store) Wait() error {
	s.drain()
	return s.failures()
}

// failures returns the errors since the previous call of failures.
func (s *Store) failures() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errors.Join(s.errs...)
	s.errs = nil
	return err
}

// Close waits and returns errors as Wait does, and releases the directory. After Close, Save is an
// error.
func (s *Store) Close() error {
	err := s.Wait()
	s.closed = true
	s.lock.release()
	return err
}

// A Loaded is a checkpoint that was read.
type Loaded struct {
	Path    string
	Info    Info
	Tree    map[string]any
	Damaged []error // an *[Error] for each newer file that cannot be used

	damaged []Entry
}

// Load reads the newest usable checkpoint. Damaged lists newer checkpoints that Load cannot use.
// Load does not remove them. Later saves overwrite or remove files with damaged contents, but
// keep files that may be intact. Such a file has a newer version of the format, or could not be
// read for lack of permission or memory. If there is no usable checkpoint, the error wraps
// [fs.ErrNotExist]. Load follows symbolic links. A dangling link is listed in Damaged and stays.
func (s *Store) Load() (*Loaded, error) {
	s.drain()
	return s.load()
}

func (s *Store) load() (*Loaded, error) {
	l, err := Load(s.c.Dir)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.damaged = l.damaged // prune does not count damaged files
	s.list = slices.DeleteFunc(s.list, func(x Entry) bool {
		return slices.ContainsFunc(l.damaged, func(d Entry) bool { return d.Path == x.Path })
	})
	return l, nil
}

// Load reads the newest usable checkpoint of a directory, as [Store.Load] does. It only reads, so
// it works while a training writes to the directory.
func Load(dir string) (*Loaded, error) {
	// patience is the number of attempts. A training that saves continuously may remove a file that
	// Load has just found.
	const patience = 10
	for try := 1; ; try++ {
		l, gone, err := load(dir)
		if err == nil || !gone || try == patience {
			return l, err
		}
	}
}

// load makes one attempt of Load. gone is true if a listed file has disappeared.
func load(dir string) (l *Loaded, gone bool, err error) {
	files, err := names(dir)
	if err != nil {
		return nil, false, err
	}
	l = &Loaded{}
	for _, f := range slices.Backward(files) {
		tree, info, err := Read(f.Path)
		switch {
		case err == nil:
			l.Path, l.Info, l.Tree = f.Path, info, tree
			return l, false, nil
		case errors.Is(err, fs.ErrNotExist):
			if to, lerr := os.Readlink(f.Path); lerr == nil {
				l.Damaged = append(l.Damaged, &Error{Path: f.Path, Msg: "this is a symbolic link to " + to + ", where nothing is", Err: err})
				continue
			}
			gone = true
			continue
		}
		l.Damaged = append(l.Damaged, err)
		if isDamage(err) {
			l.damaged = append(l.damaged, f)
		}
	}
	if len(l.Damaged) > 0 {
		return nil, gone, &Error{Path: dir, Msg: "none of the checkpoints can be used", Err: errors.Join(l.Damaged...)}
	}
	return nil, gone, &Error{Path: dir, Msg: "there are no checkpoints (step-N.safetensors) in this directory", Err: fs.ErrNotExist}
}

// isDamage reports whether the contents of a file caused this error of Read, so that reading the
// file again would fail too.
func isDamage(err error) bool {
	var system *fs.PathError
	var memory *tensor.Error
	return !errors.Is(err, errNewer) && !errors.As(err, &system) && !errors.As(err, &memory)
}

// Latest returns the path of the newest checkpoint in a directory, judged only by its name. If
// there is no checkpoint, the error wraps [fs.ErrNotExist].
func Latest(dir string) (string, error) {
	files, err := names(dir)
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", &Error{Path: dir, Msg: "there are no checkpoints (step-N.safetensors) in this directory", Err: fs.ErrNotExist}
	}
	return files[len(files)-1].Path, nil
}

// names lists the files in a directory that are named like checkpoints, in the order of their
// steps. A file may be a symbolic link.
func names(dir string) ([]Entry, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, &Error{Path: dir, Err: err}
	}
	var out []Entry
	for _, f := range list {
		if m := fileName.FindStringSubmatch(f.Name()); m != nil && (f.Type().IsRegular() || f.Type()&fs.ModeSymlink != 0) {
			step, err := strconv.Atoi(m[1])
			if err == nil {
				out = append(out, Entry{filepath.Join(dir, f.Name()), Info{Step: step, Metric: math.NaN()}})
			}
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return a.Info.Step - b.Info.Step })
	return out, nil
}

// List returns the checkpoints in a directory, oldest first, with the Info in their headers. It
// leaves out files whose header cannot be read. It does not check the tensors.
func List(dir string) ([]Entry, error) {
	files, err := names(dir)
	if err != nil {
		return nil, err
	}
	var out []Entry
	for _, f := range files {
		meta, err := metadata(f.Path)
		if err == nil && json.Unmarshal([]byte(meta[keyInfo]), &f.Info) == nil {
			out = append(out, f)
		}
	}
	return out, nil
}

// metadata reads only the header of a safetensors file, and returns its metadata.
func metadata(path string) (map[string]string, error) {
	// Opening a pipe would block until another process writes to it.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, errors.New("this is not a file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var size [8]byte
	if _, err := io.ReadFull(f, size[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(size[:])
	if n > uint64(info.Size()) || n > 100<<20 {
		return nil, errors.New("the header is longer than the file")
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(f, text); err != nil {
		return nil, err
	}
	var header struct {
		Metadata map[string]string `json:"__metadata__"`
	}
	return header.Metadata, json.Unmarshal(text, &header)
}
