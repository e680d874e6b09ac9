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

// Pack holds kernels that a program ships, so that its first step compiles none of them. It has
// their PTX, and machine code for the GPUs on which it was made. [Device.Pack] makes a pack,
// [ReadPack] and [OpenPack] read one, and [Device.UsePack] makes devices load kernels from it. The
// environment variable FLAMBEAU_KERNELS names a pack file that every program opens when it first
// uses a GPU.
//
// Machine code runs on GPUs of the compute capability for which it was compiled. It needs the
// driver that compiled it, or a newer driver. Kernels that are not in the pack are compiled as
// usual. A pack contains code that runs on the GPU. Its checksum detects damage, but not malicious
// changes.
type Pack struct {
	mu   sync.RWMutex
	list map[[sha256.Size]byte]*packed // the key is the SHA-256 of the PTX text
}

// packed is a kernel of a pack.
type packed struct {
	name, ptx string
	codes     []packedCode
}

// packedCode is the machine code of a kernel for one compute capability, compiled by one driver.
type packedCode struct {
	sm     int // compute capability times ten
	driver cu.Version
	image  []byte
}

// A pack file begins with the text packMagic, a version and the number of kernels. Each kernel has
// a name, its PTX and a list of machine codes. A machine code consists of the capability, the
// driver's version and the image. Numbers are little-endian. Every text and image is preceded by
// its length. The file ends with the SHA-256 of all preceding bytes.
const (
	packMagic   = "flambeau kernels"
	packVersion = 1
	mostPacked  = 1 << 30 // largest size of a pack file in bytes
)

// PackError says why a file is not a valid pack.
type PackError struct {
	Path   string // path of the file; empty for a pack in memory
	Reason string
}

func (e *PackError) Error() string {
	if e.Path == "" {
		return "cuda: a pack of kernels: " + e.Reason
	}
	return "cuda: " + e.Path + " is no pack of kernels: " + e.Reason
}

// OpenPack reads a pack from a file. The error is a *[PackError], or the system's error if the file
// cannot be read.
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
		if r.short { // a damaged file may state more kernels than it contains
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

// packReader reads integers and texts from a pack. Beyond its end it returns zero values and sets
// the field short.
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

// WriteTo writes the pack to w. Packs with equal contents are written as equal bytes.
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

// sorted lists the kernels in an order that depends only on their contents.
func (p *Pack) sorted() (list []*packed) {
	for _, k := range p.list {
		list = append(list, k)
	}
	slices.SortFunc(list, func(a, b *packed) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.ptx, b.ptx)) })
	return list
}

// Kernels returns the number of kernels in the pack, and the number of those with machine code for
// d.
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

// code returns machine code of the kernel for d, or nil if there is none.
func (k *packed) code(d *Device) []byte {
	for _, c := range k.codes {
		if c.sm == d.sm && c.driver <= d.p.version {
			return c.image
		}
	}
	return nil
}

// Pack returns a pack of the kernels that the given rehearsals used. Each rehearsal is a device
// that [Device.Rehearsal] of d returned. The pack has the machine code that d's driver compiles
// for these kernels. If d has no memory (device.OpenMeta), the pack has only their PTX;
// [Device.Compile] adds machine code later. The error is a *[device.Fault], or ctx.Err().
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

// Compile compiles the kernels of p that have no machine code for d, several at once, and adds the
// code to p. It calls progress, which may be nil, with the number of kernels compiled so far and
// their total number. The error is ctx.Err(), or a *[device.Fault] with the kernels that the driver
// refuses. All other kernels are compiled in any case.
func (d *Device) Compile(ctx context.Context, p *Pack, progress func(done, all int)) error {
	p.mu.RLock()
	list := slices.DeleteFunc(p.sorted(), func(k *packed) bool { return k.code(d) != nil })
	p.mu.RUnlock()
	slices.SortStableFunc(list, func(a, b *packed) int { return cmp.Compare(len(b.ptx), len(a.ptx)) })
	return parallel(ctx, len(list), progress, func(i int) error {
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
		if list[i].code(d) == nil { // another call of Compile may have added the code
			list[i].codes = append(list[i].codes, packedCode{d.sm, d.p.version, image})
		}
		return nil
	})
}

// UsePack makes all devices of d's driver load kernels from p if p has machine code for them.
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

// packed returns a kernel's machine code from the packs that UsePack was given, or nil if there is
// none.
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
