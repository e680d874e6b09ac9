package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/atomicfile"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/shape"
)

// tuningRig is an emulated GPU on which a test decides which kernels are fast.
type tuningRig struct {
	*Device
	mu    sync.Mutex
	quick func(kernel string) bool // reports whether a kernel is one of the fast kernels
	less  time.Duration
	ran   []string
}

// rig opens a GPU that keeps measurements in the folder dir. The argument fast is a part of the
// names of kernels that take less time than all others. If fast is empty, all kernels take equal
// times.
func rig(t *testing.T, dir, fast string, tuning Tuning) *tuningRig {
	t.Helper()
	r := &tuningRig{less: 100 * time.Microsecond, quick: func(kernel string) bool { return fast != "" && strings.Contains(kernel, fast) }}
	api, err := emu.New(emu.Config{Devices: 2, Memory: 32 << 20, Segment: 64 << 10, Latency: func(op emu.Op) time.Duration {
		r.mu.Lock()
		defer r.mu.Unlock()
		if op.Kind != emu.KindKernel || !strings.HasPrefix(op.Name, "gemm") {
			return 0
		}
		r.ran = append(r.ran, op.Name)
		if r.quick(op.Name) {
			return time.Millisecond - r.less
		}
		return time.Millisecond
	}})
	must(t, err)
	p, err := newPlatform(api)
	must(t, err)
	p.tunedDir = dir
	r.Device, err = p.open(0)
	must(t, err)
	r.tuned.logf = func(format string, args ...any) { t.Errorf(format, args...) }
	r.SetTuning(tuning)
	return r
}

// kernels returns the names of the product kernels that have run since the last call.
func (r *tuningRig) kernels(t *testing.T) []string {
	t.Helper()
	must(t, r.Synchronize())
	r.mu.Lock()
	defer r.mu.Unlock()
	ran := r.ran
	r.ran = nil
	return ran
}

func (r *tuningRig) file() string { return r.tuned.path }

// halfProduct returns a product of bfloat16 matrices whose sums are exact, and a function that
// checks the result.
func halfProduct(t *testing.T, d *Device, s device.Stream, m int) (op *device.MatMul, check func()) {
	t.Helper()
	const n, k = 72, 128
	bits := []uint16{0, 0x3f80, 0x4000} // the bits of 0, 1 and 2
	of := func(rows, columns int, value func(i int) uint16) device.View {
		var b []byte
		for i := range rows * columns {
			b = binary.LittleEndian.AppendUint16(b, value(i))
		}
		buf, err := d.Alloc(len(b), s, device.Origin{Op: "test"})
		must(t, err)
		must(t, d.Upload(s, buf, 0, b))
		return device.View{Buf: buf, Type: dtype.BF16, Layout: shape.Dense(shape.Of(1, rows, columns))}
	}
	op = &device.MatMul{A: of(m, k, func(int) uint16 { return bits[1] }), B: of(k, n, func(i int) uint16 { return bits[i%n%3] }), Out: of(m, n, func(int) uint16 { return 0x7fc0 })}
	return op, func() {
		t.Helper()
		got := make([]byte, 2*m*n)
		must(t, d.Download(s, got, op.Out.Buf, 0))
		for i := range m * n {
			want := []uint16{0, 0x4300, 0x4380}[i%n%3] // the bits of 0, 128 and 256
			if v := binary.LittleEndian.Uint16(got[2*i:]); v != want {
				t.Fatalf("element %d is %#x, want %#x", i, v, want)
			}
		}
	}
}

// product runs a product, checks its result, and returns the names of the product kernels that ran.
func (r *tuningRig) product(t *testing.T, m int) []string {
	t.Helper()
	r.kernels(t)
	op, check := halfProduct(t, r.Device, nil, m)
	must(t, r.Run(r.DefaultStream(), op, nil))
	check()
	return r.kernels(t)
}

// fastTile is the part of a product kernel's name that stands for the tile 32×64×64. The model does
// not choose this tile for 40 rows.
const fastTile = "_32x64x64_"

// TestTuning measures a product. The fastest form must replace the model's choice and be recorded.
// The next program must use it without measuring.
func TestTuning(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "products")
	off := rig(t, dir, "", TuningOff)
	planned := off.product(t, 40)
	if len(planned) != 1 || strings.Contains(planned[0], fastTile) {
		t.Fatalf("without tuning: %v", planned)
	}
	on := rig(t, dir, fastTile, TuningOn)
	ran := on.product(t, 40)
	chosen := ran[len(ran)-1]
	if len(ran) < 12 || !strings.Contains(chosen, fastTile) || !slices.Contains(ran, planned[0]) {
		t.Fatalf("measured with %v", ran)
	}
	if again := on.product(t, 40); len(again) != 1 || again[0] != chosen {
		t.Errorf("the second time: %v", again)
	}
	list := on.TunedProducts()
	if len(list) != 1 || list[0].Product != "bfloat16 1x40x72x128 k·o=v" || !strings.HasPrefix(list[0].Chosen, "32x64x64") ||
		strings.HasPrefix(list[0].Planned, "32x64x64") || list[0].Before < time.Millisecond || list[0].After >= time.Millisecond {
		t.Errorf("%v", list)
	}
	if s := list[0].String(); !strings.HasPrefix(s, "bfloat16 1x40x72x128 k·o=v: 32x64x64 in 90") || !strings.Contains(s, "; the model's "+list[0].Planned+" in 1.0") {
		t.Error(s)
	}
	text, err := os.ReadFile(on.file())
	if err != nil || !bytes.Contains(text, []byte(`{"product":"bfloat16 1x40x72x128 k·o=v","form":{"tile":[32,64,64],"stages":4}`)) {
		t.Errorf("%s, %v", text, err)
	}

	// A second GPU of the same kind must use the same form.
	other, err := on.p.open(1)
	must(t, err)
	other.SetTuning(TuningOn)
	op, check := halfProduct(t, other, nil, 40)
	must(t, other.Run(nil, op, nil))
	check()
	if ran := on.kernels(t); len(ran) != 1 || ran[0] != chosen || len(other.TunedProducts()) != 1 {
		t.Errorf("another GPU: %v", ran)
	}
	// A measurement that another GPU made at the same time is ignored. The form of the first
	// measurement stays.
	late := tunedRecord{Product: list[0].Product, Form: kernels.Form{Tile: [3]int{16, 64, 64}}}
	for _, p := range slices.Collect(maps.Keys(on.tuned.known)) {
		if f := on.tuned.add(p, late); f.Tile != [3]int{32, 64, 64} {
			t.Errorf("a later measurement replaces the first: %v", f)
		}
	}

	// A second program must use the recorded form and measure nothing.
	for _, tuning := range []Tuning{TuningUse, TuningOn} {
		second := rig(t, dir, "", tuning)
		if ran := second.product(t, 40); len(ran) != 1 || ran[0] != chosen {
			t.Errorf("%v: %v", tuning, ran)
		}
		if got := second.TunedProducts(); !slices.Equal(got, list) || second.Tuning() != tuning {
			t.Errorf("%v: %v", tuning, got)
		}
	}
	off = rig(t, dir, "", TuningOff)
	if ran := off.product(t, 40); !slices.Equal(ran, planned) {
		t.Errorf("without asking: %v", ran)
	}
	if got := off.TunedProducts(); !slices.Equal(got, list) {
		t.Errorf("without asking: %v", got)
	}
	use := rig(t, dir, "", TuningUse)
	if ran := use.product(t, 24); len(ran) != 1 || len(use.TunedProducts()) != 1 {
		t.Errorf("use measures: %v", ran)
	}

	// A rehearsal must use the kernels that the GPU will use.
	r, err := use.Rehearsal()
	must(t, err)
	op, _ = halfProduct(t, r.(*Device), nil, 40)
	must(t, r.Run(nil, op, nil))
	must(t, use.Load(t.Context(), r, nil))
	loaded := use.Counters().Kernels
	if ran := use.product(t, 40); len(ran) != 1 || ran[0] != chosen || use.Counters().Kernels != loaded {
		t.Errorf("after a rehearsal: %v, %d kernels more", ran, use.Counters().Kernels-loaded)
	}
}

// TestTuningRounds measures forms in several rounds, as on hardware. Neither an occasional slow
// launch nor the order of the forms may affect the choice.
func TestTuningRounds(t *testing.T) {
	r := rig(t, "", fastTile, TuningOn)
	r.p.rounds = measuredRounds
	launches := 0
	quick := r.quick
	r.quick = func(kernel string) bool {
		launches++
		return quick(kernel) && launches%5 != 0
	}
	ran := r.product(t, 40)
	if n := slices.IndexFunc(ran, func(k string) bool { return k == ran[len(ran)-1] }); n == 0 || !strings.Contains(ran[n], fastTile) {
		t.Errorf("%v", ran)
	}
	if list := r.TunedProducts(); len(list) != 1 || len(ran) < 70 || list[0].Before < time.Millisecond || list[0].After >= time.Millisecond {
		t.Errorf("%d launches: %v", len(ran), list)
	}
	r.quick = func(kernel string) bool { return false }
	r.product(t, 24)
	for _, p := range r.TunedProducts() {
		if strings.Contains(p.Product, "24x72") && p.Chosen != p.Planned {
			t.Errorf("of forms that take the same: %v", p)
		}
	}
}

// TestTuningGain measures a form that is less than 3 % faster than the model's choice. The model's
// choice must stay.
func TestTuningGain(t *testing.T) {
	r := rig(t, "", fastTile, TuningOn)
	r.less = 20 * time.Microsecond
	if ran, off := r.product(t, 40), rig(t, "", "", TuningOff).product(t, 40); ran[len(ran)-1] != off[0] {
		t.Errorf("%v took the place of %v", ran[len(ran)-1], off)
	}
	if list := r.TunedProducts(); len(list) != 1 || list[0].Chosen != list[0].Planned || list[0].Before != list[0].After {
		t.Errorf("%v", list)
	}
}

// TestTuningFloat32 measures products without tensor cores. A form without divided sums is faster
// here and must be chosen.
func TestTuningFloat32(t *testing.T) {
	r := rig(t, t.TempDir(), "", TuningOff)
	op, want := dividedProduct(t, r.Device, nil, 3)
	run := func() []string {
		r.kernels(t)
		must(t, r.Run(nil, op, nil))
		out := op.Out
		out.Layout = shape.Dense(shape.Of(len(want)))
		check(t, r.Device, nil, out, want...)
		return r.kernels(t)
	}
	planned := run()
	if len(planned) != 1 || !strings.HasSuffix(planned[0], "_parts") {
		t.Fatalf("%v", planned)
	}
	r.SetTuning(TuningOn)
	r.quick = func(kernel string) bool { return !strings.HasSuffix(kernel, "_parts") }
	if ran := run(); strings.HasSuffix(ran[len(ran)-1], "_parts") {
		t.Errorf("%v", ran)
	}
	list := r.TunedProducts()
	if len(list) != 1 || !strings.Contains(list[0].Planned, "k by") || strings.Contains(list[0].Chosen, "k by") {
		t.Errorf("%v", list)
	}
}

// TestTuningDamaged writes damaged files and files of another device. Tuning must ignore and
// replace these files.
func TestTuningDamaged(t *testing.T) {
	dir := t.TempDir()
	on := rig(t, dir, fastTile, TuningOn)
	chosen := on.product(t, 40)
	good, err := os.ReadFile(on.file())
	must(t, err)
	last := chosen[len(chosen)-1]
	head, line, _ := strings.Cut(string(good), "\n")
	seconds := regexp.MustCompile(`"seconds":[^,]*`)
	for name, text := range map[string]string{
		"empty": "", "garbage": "\x00\xff{", "a line cut short": string(good[:len(good)-20]), "another version": strings.Replace(string(good), `"kernels":"`, `"kernels":"0`, 1),
		"another device": strings.Replace(head, "Emulated", "Real", 1) + "\n" + line, "no head": line, "no tile": head + "\n" + strings.Replace(line, "[32,64,64]", "[32,64,65]", 1),
		"more stages": head + "\n" + strings.Replace(line, `"stages":4`, `"stages":40`, 1), "parts of nothing": head + "\n" + strings.Replace(line, `"stages":4`, `"stages":4,"chunk":-64,"whole":7`, 1),
		"a time that none takes": head + "\n" + seconds.ReplaceAllString(line, `"seconds":1e300`), "a time below zero": head + "\n" + seconds.ReplaceAllString(line, `"seconds":-1`),
		"another type": head + "\n" + strings.Replace(line, "[32,64,64]", `"32"`, 1),
	} {
		if text == string(good) {
			t.Fatalf("%s: it is as it was", name)
		}
		must(t, os.WriteFile(on.file(), []byte(text), 0o600))
		if ran := rig(t, dir, "", TuningUse).product(t, 40); len(ran) != 1 || ran[0] == last {
			t.Errorf("%s: %v is used", name, ran)
		}
		if !slices.Contains([]string{"garbage", "another version", "no tile"}, name) {
			continue // one case of each kind is enough
		}
		if ran := rig(t, dir, fastTile, TuningOn).product(t, 40); len(ran) == 1 || ran[len(ran)-1] != last {
			t.Errorf("%s: it is not measured anew: %v", name, ran)
		}
		if text, err := os.ReadFile(on.file()); err != nil || string(text) != string(good) {
			t.Errorf("%s: it is not replaced: %s, %v", name, text, err)
		}
	}
	// the valid lines of the file are used
	escape := strings.Replace(line, "bfloat16", `\u001b[2Jbfloat16`, 1)
	must(t, os.WriteFile(on.file(), []byte(head+"\nnothing\n"+escape+line), 0o600))
	beside := rig(t, dir, "", TuningUse)
	if ran := beside.product(t, 40); len(ran) != 1 || ran[0] != last || len(beside.TunedProducts()) != 1 {
		t.Errorf("beside lines that are none: %v, %v", ran, beside.TunedProducts())
	}
	// A folder with the file's name cannot be replaced by a file. This must be reported once.
	must(t, os.Remove(on.file()))
	must(t, os.Mkdir(on.file(), 0o700))
	r, told := rig(t, dir, fastTile, TuningOn), 0
	r.tuned.logf = func(string, ...any) { told++ }
	for _, m := range []int{40, 24} {
		r.product(t, m)
	}
	if ran := r.product(t, 40); len(ran) != 1 || ran[0] != last || told != 1 {
		t.Errorf("%v, told %d times", ran, told)
	}
}

// TestTuningFullDisk checks that on a full disk only this process uses its measurements. The
// failure must be reported once, and no temporary file may be left.
func TestTuningFullDisk(t *testing.T) {
	r := rig(t, t.TempDir(), fastTile, TuningOn)
	var told []string
	r.tuned.logf = func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) }
	restore := atomicfile.Intercept(func(op, path string) error {
		if op == "write" {
			return cu.ErrOutOfMemory // the test works with any error
		}
		return nil
	})
	for _, m := range []int{40, 24} {
		r.product(t, m)
	}
	restore()
	if ran := r.product(t, 40); len(ran) != 1 || !strings.Contains(ran[0], fastTile) {
		t.Errorf("%v", ran)
	}
	if len(told) != 1 || !strings.Contains(told[0], "serve this process alone") {
		t.Errorf("%q", told)
	}
	if _, err := os.Stat(r.file()); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a part of a file is there")
	}
	r.product(t, 56) // when the disk has room again, all measurements are written
	if text, err := os.ReadFile(r.file()); err != nil || bytes.Count(text, []byte("\n")) != 4 {
		t.Errorf("%s, %v", text, err)
	}
}

// TestTuningForbidden computes products while work is recorded, while a profile measures times, and
// without enough memory. Nothing must be measured then, and existing measurements must still be
// used.
func TestTuningForbidden(t *testing.T) {
	r := rig(t, t.TempDir(), fastTile, TuningOn)
	op, check := halfProduct(t, r.Device, nil, 40)
	must(t, r.Synchronize())
	record := func() {
		t.Helper()
		before := r.Counters().Launches
		rec, err := r.NewRecording()
		must(t, err)
		must(t, r.Run(rec.Stream(), op, nil))
		if n := r.Counters().Launches - before; n != 0 {
			t.Errorf("%d launches while recording", n)
		}
		p, err := rec.Finish()
		must(t, err)
		must(t, p.Replay(nil))
		must(t, r.Synchronize())
		check()
		must(t, p.Close())
	}
	once := func(what string, chosen bool) {
		t.Helper()
		if ran := r.kernels(t); len(ran) != 1 || strings.Contains(ran[0], fastTile) != chosen {
			t.Errorf("%s: %v", what, ran)
		}
	}
	r.kernels(t)
	record()
	once("recorded", false)

	prof, err := profile.Start(profile.Options{CUDA: true})
	must(t, err)
	must(t, device.Run(r, nil, op))
	must(t, prof.Stop())
	once("profiled", false)

	stats := r.Stats()
	r.tuned.retryAfter = 0
	r.SetMemoryLimit(stats.Reserved) // memory is left for the product, but not for a measurement
	fill, err := r.Alloc(stats.Reserved-stats.Allocated-4<<10, nil, device.Origin{Op: "test"})
	must(t, err)
	must(t, r.Run(nil, op, nil))
	once("without memory", false)
	if now := r.Stats(); now.OOMs != stats.OOMs || now.Retries != stats.Retries {
		t.Errorf("a measurement runs out of memory: %+v", now)
	}
	if err := r.FailAlloc(1); err != nil {
		t.Fatal(err)
	}
	r.SetMemoryLimit(0)
	r.tuned.retryAfter = time.Hour
	must(t, r.Run(nil, op, nil))
	once("refused memory", false)
	must(t, r.FailAlloc(0))
	fill.Free()
	if n := len(r.TunedProducts()); n != 0 {
		t.Errorf("%d products are kept", n)
	}

	must(t, r.Run(nil, op, nil))
	once("in that hour", false)
	clear(r.tuned.known)
	stats = r.Stats()
	must(t, r.Run(nil, op, nil))
	if ran := r.kernels(t); len(ran) < 12 {
		t.Errorf("with memory again: %v", ran)
	}
	if now := r.Stats().Allocated; now != stats.Allocated {
		t.Errorf("a measurement leaves %d bytes behind", now-stats.Allocated)
	}
	record()
	once("recorded again", true)
}

// TestTuningAtOnce measures at the same time in several goroutines, each with its own stream, and
// in several programs that share a file.
func TestTuningAtOnce(t *testing.T) {
	dir := t.TempDir()
	rigs := []*tuningRig{rig(t, dir, fastTile, TuningOn), rig(t, dir, fastTile, TuningOn)}
	var all sync.WaitGroup
	var checks []func()
	for i, r := range rigs {
		for range 3 {
			s, err := r.NewStream(0)
			must(t, err)
			var ops []*device.MatMul
			for _, m := range []int{40, 24 + 8*i, 40} {
				op, check := halfProduct(t, r.Device, s, m)
				ops, checks = append(ops, op), append(checks, check)
			}
			all.Go(func() {
				for _, op := range ops {
					if err := r.Run(s, op, nil); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	for i, r := range rigs {
		must(t, r.Synchronize())
		for _, check := range checks[9*i : 9*i+9] {
			check()
		}
	}
	for _, r := range rigs { // this measures products whose measurement another goroutine prevented
		for _, m := range []int{40, 24, 32} {
			r.product(t, m)
		}
	}
	last := rig(t, dir, "", TuningUse)
	if n := len(last.TunedProducts()); n != 3 {
		t.Errorf("%d products are kept, want 3: %v", n, last.TunedProducts())
	}
}

// TestTuningEnvironment checks the values that FLAMBEAU_TUNE accepts. For other values, the error
// must list the accepted ones.
func TestTuningEnvironment(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for value, want := range map[string]Tuning{"": TuningOff, "0": TuningOff, "1": TuningOn, "use": TuningUse} {
		t.Setenv("FLAMBEAU_TUNE", value)
		d := emulated(t, "emulate,mem=16MiB")
		if d.Tuning() != want || (d.tuned.path != "") != (want != TuningOff) {
			t.Errorf("%q: %v, kept in %q", value, d.Tuning(), d.tuned.path)
		}
		meta, err := driver{}.OpenMeta(device.MetaConfig{Capability: [2]int{9, 0}})
		must(t, err)
		op, _ := halfProduct(t, meta.(*Device), nil, 40)
		if err := meta.Run(nil, op, nil); err != nil || len(meta.(*Device).TunedProducts()) != 0 {
			t.Errorf("%q: a device without memory measures, %v", value, err)
		}
	}
	for _, value := range []string{"on", "2", " 1", "USE"} {
		t.Setenv("FLAMBEAU_TUNE", value)
		_, err := Emulate("emulate,mem=16MiB")
		var u *device.UnavailableError
		if !errors.As(err, &u) || !strings.Contains(u.Reason, `FLAMBEAU_TUNE is "`+value+`"`) || !strings.Contains(u.Reason, "want 1, use or 0") {
			t.Errorf("%q: %v", value, err)
		}
	}
	if s := Tuning(9).String(); s != "Tuning(9)" {
		t.Error(s)
	}
}
