package cuda

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/internal/atomicfile"
	"github.com/flambeau-go/flambeau/internal/filelock"
)

// tunedHead is the first line of a file of measurements. If that line differs from the expected
// one, the file is ignored.
type tunedHead struct {
	Format     string `json:"format"`
	Device     string `json:"device"`
	Capability string `json:"compute_capability"`
	Cores      int    `json:"multiprocessors"`
	Driver     string `json:"driver_version"`
	Kernels    string `json:"kernels"` // the value of [kernels.FormsVersion]
	Emulated   bool   `json:"emulated,omitempty"`
}

const tunedFormat = "flambeau products 1"

// tunedRecord is any other line of a file of measurements. It holds the times of one matrix
// product.
type tunedRecord struct {
	Product        string       `json:"product"`
	Form           kernels.Form `json:"form"`
	Seconds        float64      `json:"seconds"`
	Planned        kernels.Form `json:"planned"`
	PlannedSeconds float64      `json:"planned_seconds"`
}

// plausible reports whether the record could come from a measurement. The product's text is
// printed, so it must consist of printable characters.
func (r *tunedRecord) plausible() bool {
	took := func(s float64) bool { return s >= 0 && s <= longest.Seconds() }
	return r.Product != "" && !strings.ContainsFunc(r.Product, func(c rune) bool { return !unicode.IsPrint(c) }) && took(r.Seconds) && took(r.PlannedSeconds)
}

// tunedProducts holds the measurements of matrix products for one kind of GPU, and their file of
// JSON lines.
//
// A bad file never causes a failure, because a form from a file is used only if the planner offers
// it for the product. The file is replaced as a whole, but the records of other processes are
// preserved.
type tunedProducts struct {
	path string // path of the file of measurements; empty if there is none
	head tunedHead
	logf func(format string, args ...any) // called when the file cannot be written for the first time
	// time after which a product that could not be measured is tried again
	retryAfter time.Duration

	saving sync.Mutex
	warned sync.Once

	mu      sync.RWMutex
	read    bool
	records map[string]tunedRecord // measurements by the product's text
	known   map[kernels.Product]knownForm
}

// knownForm is the measured form of a product. If ok is false, the product was not measured yet,
// and retryAt is the earliest time of the next attempt.
type knownForm struct {
	form    kernels.Form
	ok      bool
	retryAt time.Time
}

const (
	mostTuned      = 4096     // largest number of products in a file and in the cache
	mostTunedBytes = 16 << 20 // largest size of a file of measurements in bytes
	tunedPatience  = 2 * time.Second
	longest        = time.Hour // longest plausible time of a product
	tunedAgain     = time.Second
)

// defaultTuned returns the folder for measurements in the user's cache directory, or "" if there is
// none.
func defaultTuned() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "flambeau", "products")
}

// tunedFor returns the measurements that all devices of d's kind share.
func (p *platform) tunedFor(d *Device) *tunedProducts {
	head := tunedHead{Format: tunedFormat, Device: d.info.Name, Capability: dotted(d.sm), Cores: d.info.Cores, Driver: d.info.Driver, Emulated: p.emulated}
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, head.Device)
	name := fmt.Sprintf("%s-sm%d-%d-cuda%s.jsonl", plain, d.sm, head.Cores, head.Driver)
	m := &tunedProducts{head: head, logf: log.Printf, retryAfter: tunedAgain, records: map[string]tunedRecord{}, known: map[kernels.Product]knownForm{}}
	if p.tunedDir != "" {
		m.path = filepath.Join(p.tunedDir, name)
	}
	v, _ := p.tuned.LoadOrStore(name, m)
	return v.(*tunedProducts)
}

// find returns what is known about the best form of a product.
func (m *tunedProducts) find(p kernels.Product, c *kernels.Choice) knownForm {
	m.mu.RLock()
	k, known := m.known[p]
	m.mu.RUnlock()
	if known {
		return k
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loadLocked()
	if r, ok := m.records[p.String()]; ok && c.Takes(r.Form) {
		k = knownForm{form: r.Form, ok: true}
	}
	m.knowLocked(p, k)
	return k
}

// postpone prevents a product that could not be measured from being tried again immediately.
// Planning all forms of a product takes the host longer than the product itself.
func (m *tunedProducts) postpone(p kernels.Product) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.known[p]; !k.ok {
		m.knowLocked(p, knownForm{retryAt: time.Now().Add(m.retryAfter)})
	}
}

func (m *tunedProducts) knowLocked(p kernels.Product, k knownForm) {
	if len(m.known) >= mostTuned {
		clear(m.known)
	}
	m.known[p] = k
}

// full reports whether as many products have been measured as are allowed (mostTuned).
func (m *tunedProducts) full() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.records) >= mostTuned
}

func (m *tunedProducts) list() (list []tunedRecord) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loadLocked()
	for _, r := range m.records {
		list = append(list, r)
	}
	return list
}

// add stores a record and returns its form. If another device of this kind has already added a
// record for the product, add returns that record's form. All devices of a kind therefore use the
// same form.
func (m *tunedProducts) add(p kernels.Product, r tunedRecord) kernels.Form {
	m.mu.Lock()
	if k := m.known[p]; k.ok {
		m.mu.Unlock()
		return k.form
	}
	m.records[r.Product] = r
	m.knowLocked(p, knownForm{form: r.Form, ok: true})
	m.mu.Unlock()
	if err := m.save(); err != nil {
		m.warned.Do(func() { m.logf("cuda: measured products cannot be kept, and serve this process alone: %v", err) })
	}
	return r.Form
}

// loadLocked reads the file when it is first called. The caller holds the lock of m.
func (m *tunedProducts) loadLocked() {
	if m.read || m.path == "" {
		return
	}
	m.read = true
	m.head.Kernels = kernels.FormsVersion()
	for _, r := range m.file() {
		m.records[r.Product] = r
	}
}

// file returns the valid records in the file. It returns none if the file was written for another
// version of the kernels or another kind of device.
func (m *tunedProducts) file() (list []tunedRecord) {
	if info, err := os.Stat(m.path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(m.path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, mostTunedBytes))
	if err != nil {
		return nil
	}
	first, rest, _ := bytes.Cut(b, []byte("\n"))
	var head tunedHead
	if json.Unmarshal(first, &head) != nil || head != m.head {
		return nil
	}
	for line := range bytes.Lines(rest) {
		var r tunedRecord
		if json.Unmarshal(line, &r) == nil && r.plausible() && len(list) < mostTuned {
			list = append(list, r)
		}
	}
	return list
}

// save rewrites the file with this process's records and the records that other processes have
// added.
func (m *tunedProducts) save() (err error) {
	if m.path == "" {
		return nil
	}
	m.saving.Lock()
	defer m.saving.Unlock()
	dir := filepath.Dir(m.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock, err := filelock.Open(m.path+".lock", 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err := filelock.Try(lock)
		// without file locks, two processes may overwrite each other's records
		if err == nil || errors.Is(err, errors.ErrUnsupported) {
			break
		}
		if !errors.Is(err, filelock.ErrHeld) || time.Since(start) > tunedPatience {
			return err
		}
	}
	// remove temporary files of processes that ended while they wrote
	if _, err := atomicfile.Clean(dir); err != nil {
		return err
	}
	f, err := atomicfile.Create(m.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	if err := enc.Encode(m.head); err != nil {
		return err
	}
	for _, r := range m.merged() {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	if _, err := f.Write(b.Bytes()); err != nil {
		return err
	}
	return f.Commit()
}

// merged adds the records that other processes have written to the file, and returns all records in
// order.
func (m *tunedProducts) merged() (list []tunedRecord) {
	theirs := m.file()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range theirs {
		if _, ok := m.records[r.Product]; !ok && len(m.records) < mostTuned {
			m.records[r.Product] = r
		}
	}
	for _, r := range m.records {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b tunedRecord) int { return cmp.Compare(a.Product, b.Product) })
	return list
}
