package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func reduce(c *ctx, r reduction) {
	size := elemSize[r.typ]
	fold := strings.HasPrefix(r.name, "Reduce")
	single := size == 4
	pick := func(ps, pd inst) inst {
		if single {
			return ps
		}
		return pd
	}
	add, fma := pick((*bc).VADDPS, (*bc).VADDPD), pick((*bc).VFMADD231PS, (*bc).VFMADD231PD)
	c.lanes = c.isa.bytes / size
	c.Function(lower(r.name) + c.isa.name)
	c.Attributes(build.NOSPLIT)
	switch {
	case fold:
		c.Doc(fmt.Sprintf("%s%s computes r = %s(r, a[i]) from r = %s.", lower(r.name), c.isa.name, strings.ToLower(r.name[6:9]), map[string]string{"Min": "+Inf", "Max": "-Inf"}[r.name[6:9]]))
	case len(r.args) == 2:
		c.Doc(fmt.Sprintf("%s%s computes acc[i%%%d] = fma(a[i], b[i], acc[i%%%d]) and folds acc by halves.", lower(r.name), c.isa.name, 256/size, 256/size))
	default:
		c.Doc(fmt.Sprintf("%s%s computes acc[i%%%d] += a[i] and folds acc by halves.", lower(r.name), c.isa.name, 256/size))
	}
	c.Pragma("noescape")
	c.SignatureExpr("func(" + r.params() + ") " + r.typ)
	var src []reg.GPVirtual
	for _, a := range r.args {
		src = append(src, c.base(a))
	}
	n := c.Load(c.Param("a").Len(), c.GP64()).(reg.GPVirtual)
	count := 256 / c.isa.bytes // the accumulators fill 256 bytes
	var start reg.VecVirtual
	acc := make(vecs, count)
	if fold {
		inf := math.Inf(1)
		if strings.HasPrefix(r.name, "ReduceMax") {
			inf = math.Inf(-1)
		}
		if single {
			start = c.broadcast(f32(float32(inf)))
		} else {
			start = c.broadcast(f64(inf))
		}
	}
	for i := range acc {
		acc[i] = c.full()
		if fold {
			c.VMOVAPS(start, acc[i])
		} else {
			c.clear(acc[i])
		}
	}
	var least bool
	mini := pick((*bc).VMINPS, (*bc).VMINPD)
	if fold {
		least = strings.HasPrefix(r.name, "ReduceMin")
		if !least {
			mini = pick((*bc).VMAXPS, (*bc).VMAXPD)
		}
	}
	// extreme emits a = min(a, v), or max, with the same instructions as the elementwise kernels.
	extreme := func(a, v reg.VecVirtual) {
		if least {
			x := c.vec(int(a.Size()))
			mini(c.Context, v, a, x)
			mini(c.Context, a, v, a)
			if c.wide() {
				c.VPORD(x, a, a)
			} else {
				c.VORPS(x, a, a)
			}
			return
		}
		if !c.wide() {
			x, nan := c.vec(int(a.Size())), c.vec(int(a.Size()))
			pick(func(c *bc, o ...operand.Op) { c.VCMPPS(o[0], o[1], o[2], o[3]) }, func(c *bc, o ...operand.Op) { c.VCMPPD(o[0], o[1], o[2], o[3]) })(c.Context, operand.U8(unord), v, a, nan)
			mini(c.Context, v, a, x)
			mini(c.Context, a, v, a)
			c.VANDPS(x, a, a)
			c.VORPS(nan, a, a)
			return
		}
		x, nan, old := c.vec(int(a.Size())), c.K(), c.vec(int(a.Size()))
		pick((*bc).VCMPPS, (*bc).VCMPPD)(c.Context, operand.U8(unord), v, a, nan)
		add(c.Context, v, a, old)
		mini(c.Context, v, a, x)
		mini(c.Context, a, v, a)
		c.VPANDD(x, a, a)
		if single {
			c.VMOVAPS(old, nan, a)
		} else {
			c.VMOVAPD(old, nan, a)
		}
	}
	step := func(i int, mask func(i int) (reg.VecVirtual, reg.VecVirtual)) {
		var v vecs
		if mask != nil {
			x, y := mask(i)
			v = vecs{x, y}
		} else {
			for _, s := range src {
				v = append(v, c.load(operand.Mem{Base: s, Disp: i * c.isa.bytes}, size, nil))
			}
		}
		switch {
		case fold:
			extreme(acc[i], v[0])
		case len(src) == 2:
			fma(c.Context, v[1], v[0], acc[i])
		default:
			add(c.Context, v[0], acc[i], acc[i])
		}
	}
	round := 256 / size
	c.SUBQ(operand.I32(round), n)
	c.JL(operand.LabelRef("rest"))
	c.Label("loop")
	for i := range count {
		step(i, nil)
	}
	for _, s := range src {
		c.ADDQ(operand.I32(256), s)
	}
	c.SUBQ(operand.I32(round), n)
	c.JGE(operand.LabelRef("loop"))
	c.Label("rest")
	c.ADDQ(operand.I32(round), n)
	c.JLE(operand.LabelRef("fold"))
	if c.wide() {
		ones, bits, mask := c.GP64(), c.GP64(), c.K()
		c.MOVQ(operand.I32(-1), ones)
		c.BZHIQ(n, ones, bits) // a round has at most 64 lanes; each lane needs one bit
		step512 := func(i int) (reg.VecVirtual, reg.VecVirtual) {
			c.KMOVQ(bits, mask)
			c.SHRQ(operand.U8(c.lanes), bits)
			x := c.load(operand.Mem{Base: src[0], Disp: i * 64}, size, mask)
			if fold { // lanes without an element keep their initial value
				y := c.full()
				c.VMOVAPS(start, y)
				if single {
					c.VMOVAPS(x, mask, y)
				} else {
					c.VMOVAPD(x, mask, y)
				}
				return y, nil
			}
			if len(src) == 2 {
				return x, c.load(operand.Mem{Base: src[1], Disp: i * 64}, size, mask)
			}
			return x, nil
		}
		for i := range count {
			step(i, step512)
		}
	} else {
		// The table has 64 words of ones, followed by 64 words of zeros. A mask for n elements is
		// the 64 consecutive words that begin with n words of ones.
		table := c.StaticGlobal("mask" + r.name)
		c.DataAttributes(build.RODATA | build.NOPTR)
		for i := range 64 {
			word := uint64(math.MaxUint64)
			if i >= 32 {
				word = 0
			}
			c.AddDatum(i*8, operand.U64(word))
		}
		window := c.GP64()
		c.LEAQ(table.Offset(256), window)
		c.SHLQ(operand.U8(map[int]int{4: 2, 8: 3}[size]), n)
		c.SUBQ(n, window)
		for i := range count {
			step(i, func(i int) (reg.VecVirtual, reg.VecVirtual) {
				m := c.YMM()
				c.VMOVDQU(operand.Mem{Base: window, Disp: i * 32}, m)
				v := vecs{c.YMM(), nil}
				c.VMASKMOVPS(operand.Mem{Base: src[0], Disp: i * 32}, m, v[0])
				if fold {
					c.VBLENDVPS(m, v[0], start, v[0])
				}
				if len(src) == 2 {
					v[1] = c.YMM()
					c.VMASKMOVPS(operand.Mem{Base: src[1], Disp: i * 32}, m, v[1])
				}
				return v[0], v[1]
			})
		}
	}
	c.Label("fold")
	join := func(a, b reg.VecVirtual) {
		if fold {
			extreme(a, b)
		} else {
			add(c.Context, b, a, a)
		}
	}
	for n := count / 2; n > 0; n /= 2 {
		for i := range n {
			join(acc[i], acc[i+n])
		}
	}
	v := acc[0]
	if c.wide() {
		h := c.YMM()
		c.VEXTRACTF64X4(operand.U8(1), v, h)
		v = c.asY(v)
		join(v, h)
	}
	h := c.XMM()
	c.VEXTRACTF128(operand.U8(1), v, h)
	v = v.AsX().(reg.VecVirtual)
	join(v, h)
	if single {
		h = c.XMM()
		c.VMOVHLPS(v, v, h)
		join(v, h)
		h = c.XMM()
		c.VMOVSHDUP(v, h)
	} else {
		h = c.XMM()
		c.VUNPCKHPD(v, v, h)
	}
	join(v, h)
	c.Store(v, c.ReturnIndex(0))
	c.VZEROUPPER()
	c.RET()
}

// clear sets v to zeros.
func (c *ctx) clear(v reg.VecVirtual) {
	if c.wide() {
		c.VPXORD(v, v, v)
	} else {
		c.VXORPS(v, v, v)
	}
}
