package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/shape"
)

// formFor returns a kernel for the target a. The kernel writes mark to dynamic shared memory, and
// copies it from there to its parameter out. The shared memory has a different size for each
// target.
func formFor(t *testing.T, a ptx.Arch, mark int32) *Kernel {
	b := ptx.New("form")
	b.Target(a)
	out := b.Pointer("out", ptx.S32)
	room := b.DynamicShared("room", ptx.S32).At(ptx.Int(int64(mark)))
	room.Store(ptx.Int(int64(mark)))
	out.Store(room.Load())
	return finished(t, b, KernelConfig{Shared: 4 * int(mark+1)})
}

// TestForms checks that each device runs the most specific form that it can, both in launches and
// in replays.
func TestForms(t *testing.T) {
	base := formFor(t, ptx.SM80, 1)
	k, err := base.Forms(formFor(t, ptx.SM90, 3), formFor(t, ptx.SM90a, 4), formFor(t, ptx.SM86, 2), formFor(t, ptx.SM120a, 5))
	if err != nil {
		t.Fatal(err)
	}
	for sm, want := range map[int]int32{80: 1, 86: 2, 89: 2, 90: 4} {
		list, err := Emulate(fmt.Sprintf("emulate:1,mem=16MiB,sm=%d", sm))
		if err != nil {
			t.Fatal(err)
		}
		d := list[0]
		s := d.DefaultStream()
		b, err := d.Alloc(4, s, device.Origin{Op: "test"})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Free()
		if err := d.Launch(s, k, [3]int{}, device.View{Buf: b, Type: dtype.I32, Layout: shape.Dense(shape.Of(1))}); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		if err := d.Download(s, got, b, 0); err != nil {
			t.Fatal(err)
		}
		if n := int32(binary.LittleEndian.Uint32(got)); n != want {
			t.Errorf("compute capability %d runs form %d, want %d", sm, n, want)
		}
		err = d.Launch(s, formFor(t, ptx.SM120a, 5), [3]int{}, device.View{Buf: b, Type: dtype.I32, Layout: shape.Dense(shape.Of(1))})
		var f *device.Fault
		if !errors.As(err, &f) || !strings.Contains(err.Error(), "exactly compute capability 12.0 and PTX 8.7") {
			t.Errorf("a form for another device: %v", err)
		}
	}
}

func TestFormsDiffer(t *testing.T) {
	base := formFor(t, ptx.SM80, 1)
	b := ptx.New("other")
	b.Pointer("out", ptx.S32).Store(ptx.Int(1))
	other := finished(t, b, KernelConfig{Block: [3]int{32}})
	var e *KernelError
	if _, err := base.Forms(other); !errors.As(err, &e) || !strings.Contains(e.Reason, "another block") {
		t.Errorf("a form of another block: %v", err)
	}
	if _, err := base.Forms(everyType(t)); !errors.As(err, &e) || !strings.Contains(e.Reason, "other parameters") {
		t.Errorf("a form of other parameters: %v", err)
	}
}
