package cpu

import (
	"bytes"
	"errors"
	"testing"

	"github.com/flambeau-go/flambeau/device"
)

// foreign is another driver's memory.
type foreign struct {
	mem                 []byte
	used, freed, queued int
}

func (f *foreign) Device() device.Device { return nil }
func (f *foreign) Size() int             { return len(f.mem) }
func (f *foreign) Addr() uintptr         { return 0 }
func (f *foreign) Host() []byte          { return f.mem }
func (f *foreign) Use(device.Stream)     { f.used++ }
func (f *foreign) Free()                 { f.freed++ }
func (f *foreign) Queue()                { f.queued++ }

func TestImport(t *testing.T) {
	d := Get()
	f := &foreign{mem: make([]byte, 8)}
	b, err := d.Import(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Upload(nil, b, 2, []byte{1, 2, 3}); err != nil || !bytes.Equal(f.mem, []byte{0, 0, 1, 2, 3, 0, 0, 0}) || b.Device() != device.Device(d) {
		t.Error(f.mem, err)
	}
	b.Use(d.DefaultStream())
	b.Free()
	b.Free()
	b.Queue()
	if f.used != 1 || f.freed != 1 || f.queued != 0 {
		t.Errorf("%+v", f)
	}
	if b, err = d.Import(f); err != nil {
		t.Fatal(err)
	}
	if b.Queue(); f.queued != 1 {
		t.Errorf("%+v", f)
	}
	own, err := d.Alloc(8, nil, device.Origin{})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []device.Buffer{nil, own, &foreign{}} {
		var v *ViewError
		if _, err := d.Import(bad); !errors.As(err, &v) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
