package cuda_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

func packGPU(t testing.TB, spec string) *cuda.Device {
	t.Helper()
	gpus, err := cuda.Emulate(spec)
	if err != nil {
		t.Fatal(err)
	}
	return gpus[0]
}

// packedStep runs a step of a small GPT.
func packedStep(s *tensor.Scope) {
	m := models.NewGPT(models.GPTConfig{Vocab: 64, Context: 16, Layers: 1, Heads: 2, Width: 32}, nn.In(s))
	opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 1e-4})
	x := s.Typed(dtype.I64).Zeros(2, 16)
	m.Loss(x, x).Backward()
	opt.Step()
}

// packOf returns the bytes of the pack that d makes of the kernels of a step.
func packOf(t testing.TB, d *cuda.Device, step func(s *tensor.Scope)) []byte {
	t.Helper()
	stage, err := d.Rehearsal()
	if err != nil {
		t.Fatal(err)
	}
	tensor.Do(step, tensor.On(stage), tensor.Seed(0))
	p, err := d.Pack(t.Context(), stage)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if n, err := p.WriteTo(&b); err != nil || int(n) != b.Len() {
		t.Fatalf("%d of %d bytes, %v", n, b.Len(), err)
	}
	return b.Bytes()
}

// TestPack checks that a program with a pack compiles only the kernels that the pack lacks.
func TestPack(t *testing.T) {
	const spec = "emulate,mem=32MiB"
	written := packOf(t, packGPU(t, spec), packedStep)
	if !bytes.Equal(written, packOf(t, packGPU(t, spec), packedStep)) {
		t.Error("two packs of one step differ")
	}
	run := func(spec string, pack []byte) cuda.Counters {
		t.Helper()
		d := packGPU(t, spec)
		if pack != nil {
			p, err := cuda.ReadPack(pack)
			if err != nil {
				t.Fatal(err)
			}
			d.UsePack(p)
		}
		tensor.Do(packedStep, tensor.On(d), tensor.Seed(0))
		return d.Counters()
	}
	without, with := run(spec, nil), run(spec, written)
	t.Logf("%d of %d kernels are compiled without a pack, %d with", without.Compiled, without.Kernels, with.Compiled)
	// A rehearsal does not draw random weights, so the kernel that draws them is not in the pack.
	if without.Compiled != without.Kernels || without.Compiled < 20 || with.Kernels != without.Kernels || with.Compiled > 1 {
		t.Errorf("without a pack %+v, with %+v", without, with)
	}
	if other := run(spec+",sm=80", written); other.Compiled != other.Kernels {
		t.Errorf("code for another capability is used: %+v", other)
	}
}

// TestPackWithoutGPU makes a pack for a GPU that is absent. The pack must hold only PTX. On a
// machine with the GPU, Compile must compile the PTX.
func TestPackWithoutGPU(t *testing.T) {
	absent, err := device.OpenMeta("cuda", device.MetaConfig{Capability: [2]int{9, 0}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := cuda.ReadPack(packOf(t, absent.(*cuda.Device), packedStep))
	if err != nil {
		t.Fatal(err)
	}
	d, last := packGPU(t, "emulate,mem=32MiB"), 0
	all, ready := p.Kernels(d)
	if all < 20 || ready != 0 {
		t.Errorf("%d of %d kernels have code", ready, all)
	}
	if err := d.Compile(t.Context(), p, func(done, of int) { last = done }); err != nil {
		t.Fatal(err)
	}
	if _, ready := p.Kernels(d); ready != all || last != all || d.Counters().Compiled != uint64(all) || d.Counters().Kernels != 0 {
		t.Errorf("%d of %d kernels have code, %d were told of: %+v", ready, all, last, d.Counters())
	}
	d.UsePack(p)
	tensor.Do(packedStep, tensor.On(d), tensor.Seed(0))
	if c := d.Counters(); c.Compiled > uint64(all)+1 {
		t.Errorf("the step compiles: %+v", c)
	}
}

// TestPackCompiledTogether compiles a pack by several calls at once. The pack must hold each
// machine code once.
func TestPackCompiledTogether(t *testing.T) {
	pack := func(d *cuda.Device, calls int) []byte {
		absent, err := device.OpenMeta("cuda", device.MetaConfig{Capability: [2]int{9, 0}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := cuda.ReadPack(packOf(t, absent.(*cuda.Device), packedStep))
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range calls {
			all.Go(func() {
				if err := d.Compile(t.Context(), p, nil); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		var b bytes.Buffer
		if _, err := p.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	d := packGPU(t, "emulate,mem=32MiB")
	if one, four := pack(d, 1), pack(d, 4); !bytes.Equal(one, four) {
		t.Errorf("the pack of one call has %d bytes, that of four at once %d", len(one), len(four))
	}
}

// TestPackProgressRaises checks that a panic in the function progress reaches the caller of
// Compile.
func TestPackProgressRaises(t *testing.T) {
	d := packGPU(t, "emulate,mem=32MiB")
	stage, err := d.Rehearsal()
	if err != nil {
		t.Fatal(err)
	}
	tensor.Do(packedStep, tensor.On(stage), tensor.Seed(0))
	defer func() {
		if r := recover(); r != "no room" {
			t.Errorf("raised: %v", r)
		}
	}()
	err = d.Load(t.Context(), stage, func(done, all int) { panic("no room") })
	t.Errorf("it returns %v", err)
}

func TestPackErrors(t *testing.T) {
	good := packOf(t, packGPU(t, "emulate,mem=32MiB"), func(s *tensor.Scope) { s.Ones(3).Exp() })
	sealed := func(b []byte) []byte { // sealed returns b with a valid checksum
		sum := sha256.Sum256(b)
		return append(b[:len(b):len(b)], sum[:]...)
	}
	body := good[:len(good)-sha256.Size]
	altered := bytes.Clone(good)
	altered[len(altered)/2] ^= 1
	header := []byte("flambeau kernels")
	many := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(bytes.Clone(header), 1), 1<<32-1)
	newer := bytes.Clone(body)
	newer[len(header)] = 2
	twice := bytes.Clone(body)
	binary.LittleEndian.PutUint32(twice[len(header)+4:], 2*binary.LittleEndian.Uint32(twice[len(header)+4:]))
	twice = append(twice, body[len(header)+8:]...)
	for want, b := range map[string][]byte{
		"does not begin": nil, "checksum": altered, "version 2": sealed(newer), "end beyond": sealed(many), "left behind": sealed(append(bytes.Clone(body), 0)),
		"twice": sealed(twice),
	} {
		var e *cuda.PackError
		if _, err := cuda.ReadPack(b); !errors.As(err, &e) || !strings.Contains(e.Reason, want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for n := range good {
		if _, err := cuda.ReadPack(good[:n]); err == nil {
			t.Fatalf("%d of %d bytes are a pack", n, len(good))
		}
	}
	path := filepath.Join(t.TempDir(), "p")
	if _, err := cuda.OpenPack(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(path, altered, 0o600); err != nil {
		t.Fatal(err)
	}
	var e *cuda.PackError
	if _, err := cuda.OpenPack(path); !errors.As(err, &e) || e.Path != path {
		t.Error(err)
	}
}

// FuzzReadPack checks that ReadPack returns a pack or an error for any bytes. A valid pack must be
// the same after it is written and read again.
func FuzzReadPack(f *testing.F) {
	good := packOf(f, packGPU(f, "emulate,mem=32MiB"), func(s *tensor.Scope) { s.Ones(3).Exp() })
	f.Add(good[:len(good)-sha256.Size])
	f.Add([]byte("flambeau kernels\x01\x00\x00\x00\x01\x00\x00\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, body []byte) {
		sum := sha256.Sum256(body)
		p, err := cuda.ReadPack(append(bytes.Clone(body), sum[:]...))
		var e *cuda.PackError
		if err != nil {
			if !errors.As(err, &e) || p != nil {
				t.Errorf("%v, %v", p, err)
			}
			return
		}
		var b bytes.Buffer
		if _, err := p.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		if _, err := cuda.ReadPack(b.Bytes()); err != nil {
			t.Error(err)
		}
	})
}
