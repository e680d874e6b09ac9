package cuda

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
)

// A Pack is kernels that a program ships, so that its first step compiles none of them: their PTX,
// and machine code for the GPUs that it was made on. [Device.Pack] makes one, [ReadPack] and
// [OpenPack] read it, [Device.UsePack] has kernels loaded from it. The environment variable
// FLAMBEAU_KERNELS names a file that each program opens by itself.
//
// Machine code serves GPUs of the same compute capability, with the driver that compiled it or a
// newer one. What a pack lacks is compiled as ever. It is code that runs on the GPU: its checksum
// finds damage, and no malice.
type Pack struct {
	mu   sync.RWMutex
	list map[[sha256.Size]byte]*packed // by the hash of the PTX
}

// packed is a kernel of a pack.
type packed struct {
	name, ptx string
	codes     []packedCode
}

// packedCode is what a driver made of the PTX.
type packedCode struct {
	sm     int // compute capability times ten
	driver cu.Version
	image  []byte
}

// The format: the magic, the version and the number of kernels, 32 bits each. Then for each kernel
// its name, its PTX and its codes, which have capability, driver and image. Numbers are little
// endian, texts and images have their length before them. The SHA-256 of all that ends the file.
const (
	packMagic   = "flambeau kernels"
	packVersion = 1
	mostPacked  = 1 << 30 // bytes of a file
)

// A PackError says why a file is no pack.
type PackError struct {
	Path   string // "" for bytes in memory
	Reason string
}

func (e *PackError) Error() string {
	if e.Path == "" {
		return "cuda: a pack of kernels: " + e.Reason
	}
	return "cuda: " + e.Path + " is no pack of kernels: " + e.Reason
}

// OpenPack reads the pack in a file. The error is a *[PackError], or that of the system.
func OpenPack(path string) (*Pack, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, mostPacked+1))
	if err != nil {
		return nil, err
	}
	p, err := ReadPack(b)
	if e, ok := err.(*PackError); ok {
		e.Path = path
	}
	return p, err
}

// ReadPack reads a pack from memory, such as a file that the program embeds. The error is a
// *[PackError].
func ReadPack(b []byte) (*Pack, error) {
	bad := func(format string, a ...any) (*Pack, error) {
		return nil, &PackError{Reason: fmt.Sprintf(format, a...)}
	}
	switch {
	case len(b) > mostPacked:
		return bad("it has more than %d bytes", mostPacked)
	case len(b) < len(packMagic)+8+sha256.Size || string(b[:len(packMagic)]) != packMagic:
		return bad("it does not begin as one")
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	r := packReader{b: body[len(packMagic):]}
	if v := r.number(); v != packVersion {
		return bad("it is of version %d, and %d is known", v, packVersion)
	}
	if sha256.Sum256(body) != [sha256.Size]byte(sum) {
		return bad("its checksum is wrong: it is cut short or altered")
	}
	p := &Pack{list: map[[sha256.Size]byte]*packed{}}
	for range r.number() {
		k := &packed{name: string(r.text()), ptx: string(r.text())}
		for range r.number() {
			c := packedCode{sm: int(r.number()), driver: cu.Version(r.number()), image: r.text()}
			if r.short {
				break
			}
			k.codes = append(k.codes, c)
		}
		if r.short { // so that a count that is too large ends here
			return bad("its kernels end beyond it")
		}
		key := sha256.Sum256([]byte(k.ptx))
		if p.list[key] != nil {
			return bad("it has kernel %q twice", k.name)
		}
		p.list[key] = k
	}
	if len(r.b) > 0 {
		return bad("%d bytes are left behind its kernels", len(r.b))
	}
	return p, nil
}

// packReader reads numbers and texts. What is not there is zero, and noted.
type packReader struct {
	b     []byte
	short bool
}

func (r *packReader) number() uint32 {
	if r.short = r.short || len(r.b) < 4; r.short {
		return 0
	}
	v := binary.LittleEndian.Uint32(r.b)
	r.b = r.b[4:]
	return v
}

func (r *packReader) text() []byte {
	n := r.number()
	if r.short = r.short || uint64(len(r.b)) < uint64(n); r.short {
		return nil
	}
	t := r.b[:n:n]
	r.b = r.b[n:]
	return t
}

// WriteTo writes the pack. Equal packs are equal bytes.
func (p *Pack) WriteTo(w io.Writer) (int64, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	b := binary.LittleEndian.AppendUint32([]byte(packMagic), packVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(p.list)))
	text := func(t string) {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(t))), t...)
	}
	for _, k := range p.sorted() {
		text(k.name)
		text(k.ptx)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(k.codes)))
		for _, c := range k.codes {
			b = binary.LittleEndian.AppendUint32(b, uint32(c.sm))
			b = binary.LittleEndian.AppendUint32(b, uint32(c.driver))
			text(string(c.image))
		}
	}
	sum := sha256.Sum256(b)
	return io.Copy(w, bytes.NewReader(append(b, sum[:]...)))
}

// sorted lists the kernels in an order that depends on nothing else.
func (p *Pack) sorted() (list []*packed) {
	for _, k := range p.list {
		list = append(list, k)
	}
	slices.SortFunc(list, func(a, b *packed) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.ptx, b.ptx)) })
	return list
}

// Kernels returns how many kernels the pack has, and of how many it has code for d.
func (p *Pack) Kernels(d *Device) (all, ready int) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, k := range p.list {
		if k.code(d) != nil {
			ready++
		}
	}
	return len(p.list), ready
}

// code returns machine code of the kernel for d, nil if there is none.
func (k *packed) code(d *Device) []byte {
	for _, c := range k.codes {
		if c.sm == d.sm && c.driver <= d.p.version {
			return c.image
		}
	}
	return nil
}

// Pack returns the kernels that work on devices of [Device.Rehearsal] has taken, with the machine
// code that d's driver makes of them. A d without memory (device.OpenMeta) makes none: then the
// pack holds their PTX, for [Device.Compile]. The error is a *[device.Fault] or ctx's.
func (d *Device) Pack(ctx context.Context, rehearsals ...device.Device) (*Pack, error) {
	p := &Pack{list: map[[sha256.Size]byte]*packed{}}
	for _, x := range rehearsals {
		r, ok := x.(*Device)
		if !ok || r.rehearses != d {
			return nil, d.refusal("pack", "rehearsal", "it is no rehearsal of "+d.name)
		}
		for k := range r.kernels.Range {
			k := k.(*kernels.Kernel)
			p.list[sha256.Sum256([]byte(k.PTX))] = &packed{name: k.Name, ptx: k.PTX}
		}
	}
	if d.p.meta {
		return p, nil
	}
	return p, d.Compile(ctx, p, nil)
}

// Compile makes code for d of the kernels of a pack that have none, several at once, and adds it to
// the pack. progress, which may be nil, is told how many of these are done. The error is a
// *[device.Fault] with what the driver refuses, after which the others are compiled all the same,
// or ctx's.
func (d *Device) Compile(ctx context.Context, p *Pack, progress func(done, all int)) error {
	p.mu.RLock()
	list := slices.DeleteFunc(p.sorted(), func(k *packed) bool { return k.code(d) != nil })
	p.mu.RUnlock()
	slices.SortStableFunc(list, func(a, b *packed) int { return cmp.Compare(len(b.ptx), len(a.ptx)) })
	return together(ctx, len(list), progress, func(i int) error {
		if err := d.enter(); err != nil {
			return err
		}
		defer d.leave()
		image, err := d.machineCode(list[i].name, list[i].ptx)
		if err != nil {
			return d.fault(list[i].name, err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if list[i].code(d) == nil { // another call may have been faster
			list[i].codes = append(list[i].codes, packedCode{d.sm, d.p.version, image})
		}
		return nil
	})
}

// UsePack has all devices of d's driver load kernels from p where it has code for them.
func (d *Device) UsePack(p *Pack) { d.p.usePack(p) }

func (p *platform) usePack(pack *Pack) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []*Pack
	if old := p.packs.Load(); old != nil {
		list = slices.Clone(*old)
	}
	list = append(list, pack)
	p.packs.Store(&list)
}

// packed returns the machine code that packs have of a kernel, nil for none.
func (d *Device) packed(k *kernels.Kernel) []byte {
	packs := d.p.packs.Load()
	if packs == nil {
		return nil
	}
	key := sha256.Sum256([]byte(k.PTX))
	for _, p := range *packs {
		p.mu.RLock()
		var image []byte
		if k := p.list[key]; k != nil {
			image = k.code(d)
		}
		p.mu.RUnlock()
		if image != nil {
			return image
		}
	}
	return nil
}
