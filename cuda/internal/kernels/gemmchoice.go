package kernels

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/flambeau-go/flambeau/dtype"
)

// A Form is a way in which a planner can compute a product: a tile, and a division of sums. All
// forms give the same results, up to rounding.
type Form struct {
	Tile [3]int `json:"tile"` // tile of a block: rows, columns, and elements of k in one step
	// Stages is the number of tiles of each operand in shared memory, for kernels on tensor cores.
	Stages int `json:"stages,omitempty"`
	Whole  int `json:"whole,omitempty"` // number of tiles whose sums are not divided
	// number of elements of k that one block sums in a tile with divided sums; 0 means all of k
	Chunk int `json:"chunk,omitempty"`
	// whether all blocks of a tile with divided sums help to add up the partial sums
	Share bool `json:"share,omitempty"`
	Loop  bool `json:"loop,omitempty"` // whether blocks loop over tiles
	// CopyA and CopyB say whether a factor is first copied to rows aligned to 16 bytes.
	CopyA bool `json:"copy_a,omitempty"`
	CopyB bool `json:"copy_b,omitempty"`
}

// String returns a text such as "128x128x32, k by 512 behind 264 tiles". It names the tile, the
// part of k that a block sums in tiles with divided sums, and the number of tiles whose sums are
// not divided.
func (f Form) String() string {
	s := fmt.Sprintf("%dx%dx%d", f.Tile[0], f.Tile[1], f.Tile[2])
	if f.Chunk > 0 {
		s += fmt.Sprintf(", k by %d", f.Chunk)
	}
	if f.Whole > 0 {
		s += fmt.Sprintf(" behind %d tiles", f.Whole)
	}
	if f.Share {
		s += ", shared"
	}
	if f.Loop {
		s += ", in a loop"
	}
	if f.CopyA {
		s += ", A copied"
	}
	if f.CopyB {
		s += ", B copied"
	}
	return s
}

// A Chooser chooses the form of a product. If it returns false, the cost model chooses.
type Chooser func(*Choice) (Form, bool)

// A Choice describes a product for which a Chooser is to choose a form.
type Choice struct {
	g       *GPU
	o       ProductOperands
	planned productPlan // plan with the form that the model chose
}

// A productPlan is the plan of a product in a certain form. For sums of length k, named(k) returns
// this form.
type productPlan interface {
	named(k int) Form
	launches(o ProductOperands, scratch Scratch) ([]Launch, error)
}

func (p tensorPlan) named(k int) Form {
	f := Form{Tile: [3]int{p.form.bm, p.form.bn, p.form.bk}, Stages: p.stages(), Share: p.share, Loop: p.loop, CopyA: p.realignA, CopyB: p.realignB}
	return f.divided(p.division, k)
}

func (p floatPlan) named(k int) Form {
	t := p.spec.tile
	return Form{Tile: [3]int{t.bm, t.bn, t.bk}}.divided(p.division, k)
}

func (f Form) divided(d division, k int) Form {
	if d.parts(k) > 1 {
		f.Whole, f.Chunk = d.undivided, d.chunk
	}
	return f
}

// chosen returns the plan for the form that o.Choose selects. It returns the model's plan if k is
// 0, if Choose selects no form, or if the form does not fit this product.
func (o *ProductOperands) chosen(g *GPU, planned productPlan) productPlan {
	if o.A.Shape.At(2) == 0 {
		return planned
	}
	c := &Choice{g, *o, planned}
	if f, ok := o.Choose(c); ok {
		if p, ok := c.plan(f); ok {
			return p
		}
	}
	return planned
}

// A Product holds everything on which the choice of a form depends. Equal Products have the same
// possible forms.
type Product struct {
	tensor           tensorSpec // specification for tensor cores, without a form
	float            gemmSpec   // specification without tensor cores, without a tile
	act              string     // name of the activation
	batch, m, n, k   int
	divisible        bool
	canA, canB       bool // whether the factor can first be copied to aligned rows
	sharedA, sharedB bool // whether all products of the batch have the same factor
}

// Product returns the product for which a form is to be chosen.
func (c *Choice) Product() Product {
	o := &c.o
	p := Product{batch: o.Out.Shape.At(0), m: o.Out.Shape.At(1), n: o.Out.Shape.At(2), k: o.A.Shape.At(2), divisible: o.mayDivide()}
	shared := func(o Operand) bool { return p.batch > 1 && o.Strides.At(0) == 0 }
	p.sharedA, p.sharedB = shared(o.A), shared(o.B)
	if o.Act != nil {
		key := "_" + o.Act.Key()[:8]
		p.act = strings.TrimSuffix(o.Act.Name(), key) + key
	}
	if _, ok := c.planned.(floatPlan); ok {
		p.float = floatSpecFor(o).finishing(*o)
		return p
	}
	s, _ := tensorSpecFor(o.Out, o.A, o.B)
	p.tensor = s.finishing(*o)
	list, count := c.g.realignments(o.Out, o.A, o.B)
	for _, r := range list[:count] {
		p.canA, p.canB = p.canA || r.a, p.canB || r.b
	}
	return p
}

// String returns the product as text, for people and for files.
func (p Product) String() string {
	var typ, out, bias dtype.Type
	var a, b, to fmt.Stringer
	var act actSpec
	var sums sumsSpec
	if s := &p.tensor; s.typ != dtype.Invalid {
		typ, out, bias, a, b, to, act, sums = s.typ, s.out, s.bias, s.a, s.b, s.store, s.actSpec, s.sums
	} else {
		s := &p.float
		typ, out, bias, a, b, to, act, sums = s.typ, s.out, s.bias, s.a, s.b, storeElements, s.actSpec, s.sums
		if s.vectorOut {
			to = storePieces
		}
	}
	factors := typ.String()
	if p.tensor.typ == dtype.F32 {
		factors = "tf32"
	}
	text := fmt.Sprintf("%s %dx%dx%dx%d %v·%v=%v", factors, p.batch, p.m, p.n, p.k, a, b, to)
	for _, part := range []struct {
		yes  bool
		text string
	}{
		{p.tensor.odd, "odd rows"}, {out != typ, "out " + out.String()}, {bias != dtype.Invalid, "bias " + bias.String()},
		{act.act != "", p.act}, {act.pre, "pre"}, {act.with != dtype.Invalid, "with " + act.with.String()},
		{sums.rows, "row sums"}, {sums.columns, "column sums"}, {p.sharedA, "one A"}, {p.sharedB, "one B"},
		{p.canA, "A may be copied"}, {p.canB, "B may be copied"}, {!p.divisible, "not divisible"},
	} {
		if part.yes {
			text += ", " + part.text
		}
	}
	return text
}

// Planned returns the form that the model chose.
func (c *Choice) Planned() Form { return c.planned.named(c.o.A.Shape.At(2)) }

// Takes reports whether form f can compute the product.
func (c *Choice) Takes(f Form) bool {
	_, ok := c.plan(f)
	return ok
}

// plan returns the plan of the product in form f, or false if f does not fit this product.
func (c *Choice) plan(f Form) (productPlan, bool) {
	o := &c.o
	batch, m, n, k := o.Out.Shape.At(0), o.Out.Shape.At(1), o.Out.Shape.At(2), o.A.Shape.At(2)
	d := undivided(k)
	if f.Chunk != 0 || f.Whole != 0 {
		d = division{undivided: f.Whole, chunk: f.Chunk}
		if f.Whole < 0 || f.Chunk <= 0 || f.Chunk%64 != 0 || d.parts(k) < 2 || d.parts(k) > mostParts || !o.mayDivide() {
			return nil, false
		}
	}
	// A form from a file could need any amount of memory for partial sums. These bounds refuse
	// forms that no planner makes.
	divides := func(tiles, most int) bool {
		rest, parts := batch*(tiles-d.undivided), d.parts(k)
		return parts == 1 || d.undivided < tiles && rest <= CounterWords && parts <= k/128 && rest*parts <= most
	}
	if p, ok := c.planned.(floatPlan); ok {
		i := slices.IndexFunc(tilesOf(o.A.Type), func(t gemmTile) bool { return f.Tile == [3]int{t.bm, t.bn, t.bk} })
		if i < 0 || f.Stages != 0 || f.Whole != 0 || f.Share || f.Loop || f.CopyA || f.CopyB {
			return nil, false
		}
		p.spec.tile, p.division = tilesOf(o.A.Type)[i], d
		return p, divides(p.spec.tiles(m, n), max(4*c.g.Cores, 2*wantedBlocks))
	}
	list, count := c.g.realignments(o.Out, o.A, o.B)
	for _, r := range list[:count] {
		s := r.spec
		i := slices.IndexFunc(tensorForms, func(t tensorForm) bool {
			s.form = t.forType(s.typ)
			return f.Tile == [3]int{s.form.bm, s.form.bn, s.form.bk} && f.Stages == s.stages()
		})
		if i < 0 || r.a != f.CopyA || r.b != f.CopyB {
			continue
		}
		if !s.fits() || c.g.resident(s) < 1 || !divides(s.tiles(m, n), mostEach*c.g.Cores) || d.undivided > 0 && (batch > 1 || s.odd) {
			return nil, false
		}
		if s.share = f.Share; s.share && !(o.plain() && c.g.shares(s, batch*(s.tiles(m, n)-d.undivided), d.parts(k))) {
			return nil, false
		}
		if f.Loop {
			var ok bool
			if s, d, ok = c.g.looped(s, batch, m, n, k); !ok || f.Chunk != 0 {
				return nil, false
			}
		}
		t, _ := c.g.cost(s, batch, m, n, k, d)
		return tensorPlan{s, d, t + r.seconds, r.a, r.b}, true
	}
	return nil, false
}

// mostParts is the largest number of parts into which k is divided.
const mostParts = 64

// mostForms is the largest number of forms of a product that are measured. The constant named
// "likely" excludes slow forms: a form is measured only if its predicted time is at most 1.6 times
// that of the best form.
const (
	mostForms = 12
	likely    = 1.6
)

// Forms returns the forms that are worth measuring. The first one is the model's own choice. On
// tensor cores, the forms are the best few by the model, at most two for each tile. Without tensor
// cores there is no model. Then each tile gives two forms: one without divided sums, and one that
// divides sums among about as many blocks as the device runs at once.
func (c *Choice) Forms() []Form {
	list := []Form{c.Planned()}
	add := func(f Form) {
		if len(list) < mostForms && !slices.Contains(list, f) && c.Takes(f) {
			list = append(list, f)
		}
	}
	if p, ok := c.planned.(floatPlan); ok {
		c.floatForms(p, add)
		return list
	}
	type modelled struct {
		form    Form
		seconds float64
	}
	var all []modelled
	o, best := &c.o, c.planned.(tensorPlan).seconds
	batch, m, n, k := o.Out.Shape.At(0), o.Out.Shape.At(1), o.Out.Shape.At(2), o.A.Shape.At(2)
	ways, count := c.g.realignments(o.Out, o.A, o.B)
	for _, r := range ways[:count] {
		r.spec.share = o.plain()
		c.g.eachForm(product{r.spec, batch, m, n, k, o.mayDivide()}, func(x chosenForm) {
			if t := x.seconds + r.seconds; t <= likely*best {
				all = append(all, modelled{tensorPlan{x.spec, x.division, t, r.a, r.b}.named(k), t})
			}
		})
	}
	slices.SortStableFunc(all, func(x, y modelled) int { return cmp.Compare(x.seconds, y.seconds) })
	same := map[[3]int]int{}
	for _, x := range all {
		if same[x.form.Tile]++; same[x.form.Tile] <= 2 {
			add(x.form)
		}
	}
	return list
}

func (c *Choice) floatForms(p floatPlan, add func(Form)) {
	o := &c.o
	batch, m, n, k := o.Out.Shape.At(0), o.Out.Shape.At(1), o.Out.Shape.At(2), o.A.Shape.At(2)
	own := p.spec.tile
	for _, t := range tilesOf(o.A.Type) {
		if t != own && (t.bm > smallTile.bm && t.bm >= 2*m || t.bn > smallTile.bn && t.bn >= 2*n) {
			continue // at least half of the block would lie beyond the edge
		}
		p.spec.tile, p.division = t, undivided(k)
		add(p.named(k))
		for _, each := range []int{1, 2, 4} {
			parts := min(each*c.g.Cores/(batch*p.spec.tiles(m, n)), k/128, mostParts)
			if parts > 1 {
				p.division.chunk = ceilDiv(ceilDiv(k, parts), 64) * 64
				add(p.named(k))
			}
		}
	}
}

// Trial plans the product in form f. The results go to scratch memory with the same layout and
// alignment, so that storing them takes the same time.
func (c *Choice) Trial(f Form, scratch Scratch) ([]Launch, error) {
	p, ok := c.plan(f)
	if !ok {
		return nil, fail("matmul", "%v is no form of %v", f, c.Product())
	}
	o := c.o
	for _, r := range []*Operand{&o.Out, &o.Pre, &o.Sums, &o.ColumnSums} {
		if r.Type == dtype.Invalid {
			continue
		}
		at, bytes := r.extent()
		addr, err := scratch(bytes)
		if err != nil {
			return nil, err
		}
		r.Addr, r.Offset = addr+at, 0
	}
	return p.launches(o, scratch)
}

// extent describes a copy of o in other memory: the offset of its first element, and the number of
// bytes of all elements. The offset equals the address of o's first element modulo 256, so that the
// copy is aligned like o.
func (o Operand) extent() (offset uint64, bytes int) {
	lo, hi, ok := o.Span()
	if !ok {
		return 0, 0
	}
	size, off := o.Type.Size(), int(o.start()%256)
	before := ceilDiv(max(0, (o.Offset-lo)*size-off), 256)*256 + off
	return uint64(before), before + (hi-o.Offset+1)*size
}

// FormsVersion identifies the code of the product kernels. Measurements of forms are valid only for
// programs that have the same FormsVersion as the program that made them.
var FormsVersion = sync.OnceValue(func() string {
	h := sha256.New()
	add := func(f productForm) {
		for _, f := range []productForm{f, f.inParts()} {
			k, err := f.kernel()
			if err != nil { // the planner reports the error when the kernel is used
				fmt.Fprintln(h, err)
				continue
			}
			fmt.Fprintf(h, "%d %d\n%s", k.StaticShared, k.DynShared, k.PTX)
		}
	}
	for _, typ := range []dtype.Type{dtype.BF16, dtype.F32} { // the kernels for F32 multiply in tf32
		for _, t := range tensorForms {
			s := tensorSpec{typ: typ, out: typ, form: t.forType(typ), a: tensorLoad{vector: 16 / typ.Size(), alongK: true}, b: tensorLoad{vector: 16 / typ.Size()}, store: storePieces}
			add(s)
			if s.loop = true; s.loops() {
				add(s)
			}
			s.loop, s.share = false, true
			add(s)
			s.share, s.bias, s.sums = false, typ, sumsSpec{rows: true}
			add(s)
		}
	}
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64} {
		for _, t := range tilesOf(typ) {
			add(gemmSpec{typ: typ, out: typ, tile: t, vectorOut: true, bias: typ})
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
})
