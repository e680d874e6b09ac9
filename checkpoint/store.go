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

// A Best says which metric is the best one.
type Best uint8

// The kinds of Best.
const (
	NoBest Best = iota // none is kept for its metric
	Least              // the least, as of a loss
	Most               // the greatest, as of an accuracy
)

// Config sets a [Store].
type Config struct {
	Dir  string // is made if it is not there
	Keep int    // how many of the newest are kept; 0: 3
	Best Best   // whether the one with the best metric is kept too

	// Done, if not nil, is told of every save that has ended, by the goroutine that wrote it. It
	// asks the [Saved] what it wants to know. It must call no method of the Store: those wait for
	// Done.
	Done func(Saved)
}

// Saved is a save that has ended. Its methods are for [Config].Done, until that returns.
type Saved struct {
	Path string
	Info Info
	Err  error // why there is no new file; the older ones are untouched

	store *Store
}

// Best is [Store.Best] with this save over.
func (s Saved) Best() (Entry, bool) { return s.store.bestEntry() }

// Load is [Store.Load] with this save over.
func (s Saved) Load() (*Loaded, error) { return s.store.load() }

// Errors returns what went wrong with this save and earlier ones since the last Wait, which then
// does not return it again.
func (s Saved) Errors() error { return s.store.failures() }

// A Store is a directory of checkpoints of one training, which it has to itself from Open to Close:
// a second one is refused, whether of this process or another. The end of a process gives the
// directory free too, however it ends. [Load], [List] and [Latest] ask nobody. Its methods are for
// one goroutine; the files are written by another one, one at a time.
type Store struct {
	c       Config
	removed []string
	lock    *lock

	busy    chan struct{} // holds a token while a file is being written
	mu      sync.Mutex
	list    []Entry // those that can be used, as far as is known
	damaged []Entry
	errs    []error
	closed  bool

	write func(*snapshot, string) error
}

// An Entry is a checkpoint of a directory.
type Entry struct {
	Path string
	Info Info
}

var fileName = regexp.MustCompile(`^step-(\d{9,18})\.safetensors$`)

// PathOf returns the name that a store in dir gives the checkpoint of a step.
func PathOf(dir string, step int) string {
	return filepath.Join(dir, fmt.Sprintf("step-%09d.safetensors", step))
}

// Open opens a directory, makes it if it is not there, and removes what saves that were killed have
// left there. The error is an *[Error]; of a directory that another training has open it wraps an
// *[InUseError]. On file systems without locks none is found; see [Store.Unlocked].
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
	if err := lock.take(patience); err != nil {
		return nil, &Error{Path: c.Dir, Err: err}
	}
	removed, err := atomicfile.Clean(c.Dir)
	if err != nil {
		lock.free()
		return nil, &Error{Path: c.Dir, Msg: "removing what killed saves have left", Err: err}
	}
	list, err := List(c.Dir)
	if err != nil {
		lock.free()
		return nil, err
	}
	return &Store{c: c, removed: removed, lock: lock, list: list, busy: make(chan struct{}, 1), write: (*snapshot).write}, nil
}

// Removed returns the temporary files of killed saves that Open has removed.
func (s *Store) Removed() []string { return s.removed }

// Unlocked says why the directory could not be locked, as on a network's file system without locks.
// A second training there is not found then, and the two would remove each other's files. It is nil
// where there is a lock.
func (s *Store) Unlocked() error { return s.lock.none }

// Save copies a tree to host memory and has it written to a file of its own, named by info.Step.
// The caller goes on meanwhile: when Save returns, the tensors of the tree may change. If the save
// before is still being written, it waits for that. It returns an error if the tree cannot be
// copied; what goes wrong in writing is returned by Wait and Close, and told to Config.Done. After
// the file is in place those are removed that are no longer to be kept; the file itself always
// stays.
func (s *Store) Save(tree map[string]any, info Info) error {
	if s.closed {
		return &Error{Path: s.c.Dir, Msg: "the store is closed"}
	}
	if info.Step < 0 || info.Epoch < 0 {
		return &Error{Path: s.c.Dir, Msg: fmt.Sprintf("step %d, epoch %d", info.Step, info.Epoch)}
	}
	path := PathOf(s.c.Dir, info.Step)
	snap, err := take(tree, info)
	if err != nil {
		return at(path, err)
	}
	s.busy <- struct{}{}
	go func() {
		defer func() { <-s.busy }()
		err := s.lock.keep()
		if err == nil {
			err = s.write(snap, path)
		}
		err = at(path, err)
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

// prune removes what is neither among the newest nor the best nor the one just written, which may
// be of an earlier step than those of another training in the directory, and damaged files that
// were passed. s.mu is held.
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

// best returns the path of the checkpoint with the best metric, of equal ones the first; "" if
// there is none.
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

// Best returns the checkpoint with the best metric among those that are there, as [Config].Best
// says; false if there is none, and always with [NoBest]. It waits for the save that is being
// written.
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

// drain waits for the save that is being written, and for Done.
func (s *Store) drain() {
	s.busy <- struct{}{}
	<-s.busy
}

// Wait waits for the save that is being written and returns what went wrong with this and earlier
// ones since the last Wait.
func (s *Store) Wait() error {
	s.drain()
	return s.failures()
}

// failures returns what went wrong since it was asked last.
func (s *Store) failures() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errors.Join(s.errs...)
	s.errs = nil
	return err
}

// Close is Wait, after which nothing more can be saved, and others may open the directory.
func (s *Store) Close() error {
	err := s.Wait()
	s.closed = true
	s.lock.free()
	return err
}

// A Loaded is a checkpoint that was read.
type Loaded struct {
	Path    string
	Info    Info
	Tree    map[string]any
	Damaged []error // of newer files, which cannot be used: an *[Error] for each

	damaged []Entry
}

// Load reads the newest checkpoint that is whole. Newer ones that it cannot use stay in their place
// and are told in Damaged. Later saves overwrite or remove those whose contents are damaged. They
// leave those that may be whole: of a newer version of the format, or not to be read now, as
// without permission or memory. If there is none at all, the error wraps [fs.ErrNotExist]. A
// symbolic link is read as what it leads to; one that leads nowhere is told in Damaged and stays.
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
	s.damaged = l.damaged // they do not count among those to keep
	s.list = slices.DeleteFunc(s.list, func(x Entry) bool {
		return slices.ContainsFunc(l.damaged, func(d Entry) bool { return d.Path == x.Path })
	})
	return l, nil
}

// Load reads the newest checkpoint of a directory that is whole, as [Store.Load] does, and changes
// nothing there. A training may be writing to it.
func Load(dir string) (*Loaded, error) {
	// a training that saves ever again may remove old files as fast as they are looked at
	const patience = 10
	for try := 1; ; try++ {
		l, gone, err := load(dir)
		if err == nil || !gone || try == patience {
			return l, err
		}
	}
}

// load is Load, which may find files gone that it has just seen.
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

// isDamage reports whether an error of Read is the fault of the file's contents, which will be the
// same next time.
func isDamage(err error) bool {
	var system *fs.PathError
	var memory *tensor.Error
	return !errors.Is(err, errNewer) && !errors.As(err, &system) && !errors.As(err, &memory)
}

// Latest returns the path of the newest checkpoint of a directory by its name, without looking into
// it. If there is none, the error wraps [fs.ErrNotExist].
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

// names lists the files of a directory that are named as checkpoints, and symbolic links to such,
// in the order of their steps.
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

// List returns the checkpoints of a directory, oldest first, with what their headers say. Files
// whose header cannot be read are left out; the tensors are not looked at.
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

// metadata reads the texts of a safetensors file's header alone.
func metadata(path string) (map[string]string, error) {
	// to open a pipe would wait for who writes to it
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
