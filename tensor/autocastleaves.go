package tensor

import (
	"sync"
	"weak"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// castCache keeps the casts of leaves. It belongs to the scope that set Autocast.
type castCache struct {
	scope *Scope
	mu    sync.Mutex
	casts map[castKey]*cachedCast
	group *castGroup // leaves whose casts an op needed
}

type castKey struct {
	leaf *Tensor
	to   dtype.Type
}

type cachedCast struct {
	source  *storage
	version uint32
	cast    *Tensor
	// true if an op needed this cast, false if it was only made together with another leaf's cast
	asked bool
}

// A castGroup lists the leaves whose casts one scope needed. A leaf points to the latest group that
// it belongs to. The group does not keep the leaf alive.
type castGroup struct {
	mu     sync.Mutex
	leaves []weak.Pointer[Tensor]
}

func (g *castGroup) add(leaf *Tensor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leaves = append(g.leaves, weak.Make(leaf))
	leaf.castWith.Store(g)
}

func (g *castGroup) list() []weak.Pointer[Tensor] {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leaves // safe without the lock: the list only grows
}

// get returns the cast of t, or nil if the cache must not keep this cast. As in torch the cache
// keeps only casts of float32 leaves that require a gradient and are not views. The cast is part of
// the graph, even if a scope without gradients needs it first.
func (k *castCache) get(t *Tensor, typ dtype.Type) *Tensor {
	if k == nil || !typ.IsHalf() || !castLeaf(t) {
		return nil
	}
	leaf := t
	// t may be a handle whose scope closes before the cache's scope; the cache then uses the leaf
	// itself
	if !t.scope.encloses(k.scope) {
		if leaf = t.base(); leaf.freed.Load() || leaf.layout != t.layout || !leaf.scope.encloses(k.scope) {
			return nil
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	key := castKey{t.base(), typ}
	c := k.current(key, t.st)
	if c == nil {
		if k.scope.isClosed() {
			return nil
		}
		if modeWatches.n.Load() != 0 {
			defer ignoreOps()()
		}
		k.castAll(append([]*Tensor{leaf}, k.companions(key.leaf, typ)...), typ)
		c = k.casts[key]
	}
	if !c.asked {
		if c.asked = true; k.group == nil {
			k.group = &castGroup{}
		}
		k.group.add(key.leaf)
	}
	return c.cast
}

// castLeaf reports whether the cache may keep the cast of t.
func castLeaf(t *Tensor) bool {
	return t.dtype == dtype.F32 && t.NeedsGrad() && t.node == nil && t.viewed == nil
}

// current returns the cast of a leaf with storage st, if the cache has a cast of its current value.
func (k *castCache) current(key castKey, st *storage) *cachedCast {
	c := k.casts[key]
	if c == nil || c.source != st || c.version != st.version.Load() || c.cast.freed.Load() {
		return nil
	}
	return c
}

// companions returns the other leaves that an earlier scope needed together with leaf and that have
// no current cast. It returns nil if one launch cannot cast them all.
func (k *castCache) companions(leaf *Tensor, to dtype.Type) (list []*Tensor) {
	s, dev := k.scope, leaf.st.dev
	if to != s.modes.autocast || s.modes.composed || s.modes.anomaly != 0 || !leaf.layout.Contiguous() {
		return nil
	}
	for _, w := range leaf.castWith.Load().list() {
		t := w.Value()
		if t == nil || t == leaf || t.freed.Load() || !castLeaf(t) || t.st.dev != dev || !t.synced() ||
			!t.layout.Contiguous() || !t.scope.encloses(s) || k.current(castKey{t, to}, t.st) != nil {
			continue
		}
		list = append(list, t)
	}
	if len(list) > 0 && !dev.Supports(&device.MultiMap{Program: castProgram(dtype.F32, to)}) {
		return nil
	}
	return list
}

// castAll casts leaves, keeps the casts and frees older casts of the same leaves.
func (k *castCache) castAll(leaves []*Tensor, to dtype.Type) {
	s := k.scope.child()
	defer s.recycle()
	s.modes.noGrad, s.modes.autocast = false, dtype.Invalid
	versions, casts := make([]uint32, len(leaves)), make([]*Tensor, len(leaves))
	for i, t := range leaves {
		versions[i] = t.st.version.Load()
		if old := k.casts[castKey{t.base(), to}]; old != nil {
			old.cast.Free()
		}
	}
	if len(leaves) == 1 {
		casts[0] = leaves[0].In(s).Cast(to)
	} else {
		m := &device.MultiMap{Program: castProgram(dtype.F32, to)}
		for i, t := range leaves {
			casts[i] = alloc("cast", s, t.st.dev, to, t.layout.Shape)
			m.Outs, m.Ins = append(m.Outs, viewsOf(casts[i:i+1])), append(m.Ins, viewsOf(leaves[i:i+1]))
		}
		operands := append(append(append([]*Tensor(nil), casts...), nil), leaves...)
		launch("cast", s, m, append(operands, nil)...)
		for i, t := range leaves {
			record(casts[i], castFunc{to}, []*Tensor{t.In(s)}, nil)
		}
	}
	s.close(casts, false)
	if k.casts == nil {
		k.casts = map[castKey]*cachedCast{}
	}
	for i, t := range leaves {
		key := castKey{t.base(), to}
		old := k.casts[key]
		k.casts[key] = &cachedCast{t.st, versions[i], casts[i], old != nil && old.asked}
	}
}
