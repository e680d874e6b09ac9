package nn

import (
	"math"
	"reflect"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/tensor"
)

// Checkpointing is embedded by layers that can compute themselves again in Backward instead of
// keeping what their gradients need: they pass what they do through Checkpoint. [SetCheckpointing]
// switches it on in all such parts of a model. The zero value is off.
type Checkpointing struct{ on bool }

// SetCheckpointing switches it on or off.
func (c *Checkpointing) SetCheckpointing(on bool) { c.on = on }

// Checkpointing reports whether it is on.
func (c *Checkpointing) Checkpointing() bool { return c.on }

// Checkpoint is f(x…), by [autograd.Checkpoint] if it is on and gradients are recorded. Operands
// that are nil come to f as nil. All that f uses and that may not last until Backward, such as
// masks, is an operand.
func (c *Checkpointing) Checkpoint(f func(x ...*tensor.Tensor) *tensor.Tensor, x ...*tensor.Tensor) *tensor.Tensor {
	if !c.on {
		return f(x...)
	}
	var given []*tensor.Tensor
	for _, t := range x {
		if t != nil {
			given = append(given, t)
		}
	}
	if len(given) == 0 || !tensor.Youngest(given...).GradEnabled() {
		return f(x...)
	}
	if len(given) == len(x) {
		return autograd.Checkpoint(f, x...)
	}
	absent := make([]bool, len(x))
	for i, t := range x {
		absent[i] = t == nil
	}
	return autograd.Checkpoint(func(given ...*tensor.Tensor) *tensor.Tensor {
		all := make([]*tensor.Tensor, len(absent))
		for i := range all {
			if !absent[i] {
				all[i], given = given[0], given[1:]
			}
		}
		return f(all...)
	}, given...)
}

// checkpointer is a part of a model that knows how.
type checkpointer interface{ SetCheckpointing(on bool) }

// SetCheckpointing switches the recomputation of activations on or off in every part of a model
// that knows how, and returns how many there are. It trades time for memory: about one more forward
// pass, without a change of any bit. It is Hugging Face's gradient_checkpointing_enable.
//
// The parts are the layers of transformers ([TransformerEncoderLayer], [TransformerDecoderLayer])
// and the blocks of package models' GPT, BERT, ViT and ResNet: each keeps its input alone.
// [Sequential] is a part too, and so is models' MLP, which is also a chain. A chain cuts itself
// into segments. A layer made of layers is a segment, if no part in it knows how but Sequentials. A
// stretch of n plain layers is cut into about √n segments. The last of these is not computed again,
// as Backward needs it first.
//
// A part within another is left off, so that nothing is computed three times. A layer of one's own
// takes part by embedding [Checkpointing], or by a method SetCheckpointing(bool).
func SetCheckpointing(model any, on bool) int {
	n, covered := 0, 0
	whole := map[place]bool{} // children of a Sequential that are a segment each
	covers := func(v reflect.Value) bool {
		c, ok := checkpointerOf(v)
		_, sequential := c.(*Sequential)
		return ok && !sequential || v.CanAddr() && whole[place{v.Addr().Pointer(), v.Type()}]
	}
	visit(model, &visitor{quick: true,
		before: func(_ string, v reflect.Value, embedded bool) {
			if embedded { // it is its struct's
				return
			}
			if c, ok := checkpointerOf(v); ok {
				c.SetCheckpointing(on && covered == 0)
				if covered == 0 {
					n++
				}
				if s, ok := c.(*Sequential); ok {
					for _, l := range s.Layers {
						if isSegment(l) {
							v := reflect.ValueOf(l).Elem()
							whole[place{v.Addr().Pointer(), v.Type()}] = true
						}
					}
				}
			}
			if covers(v) {
				covered++
			}
		},
		after: func(_ string, v reflect.Value, embedded bool) {
			if !embedded && covers(v) {
				covered--
			}
		},
	})
	return n
}

func checkpointerOf(v reflect.Value) (c checkpointer, ok bool) {
	if v.CanAddr() && v.Addr().CanInterface() {
		c, ok = v.Addr().Interface().(checkpointer)
	}
	return c, ok
}

// isSegment reports whether a layer of a Sequential is made of layers none of which knows how, but
// Sequentials inside it.
func isSegment(l Module) bool {
	v := reflect.ValueOf(l)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return false
	}
	if _, ok := l.(*Sequential); ok {
		return false
	}
	layers, knows := 0, false
	visit(l, &visitor{quick: true, before: func(_ string, v reflect.Value, embedded bool) {
		if embedded {
			return
		}
		layers++
		if c, ok := checkpointerOf(v); ok {
			if _, ok := c.(*Sequential); !ok {
				knows = true
			}
		}
	}})
	return layers > 1 && !knows
}

// A segment is some layers of a Sequential, one after another.
type segment struct {
	layers     []Module
	checkpoint bool
}

// SetCheckpointing switches it on or off, for the layers that the chain has now; see the function
// of that name.
func (s *Sequential) SetCheckpointing(on bool) {
	s.on, s.segments = on, nil
	if !on {
		return
	}
	stretch := func(l []Module) {
		size := int(math.Ceil(math.Sqrt(float64(len(l)))))
		for len(l) > 0 {
			k := min(size, len(l))
			s.segments = append(s.segments, segment{l[:k], true})
			l = l[k:]
		}
	}
	from := 0
	for i, l := range s.Layers {
		if _, knows := l.(checkpointer); knows || isSegment(l) || holdsCheckpointer(l) {
			stretch(s.Layers[from:i])
			s.segments = append(s.segments, segment{s.Layers[i : i+1], isSegment(l)})
			from = i + 1
		}
	}
	if stretch(s.Layers[from:]); from < len(s.Layers) {
		s.segments[len(s.segments)-1].checkpoint = false
	}
}

// holdsCheckpointer reports whether a part inside a layer knows how.
func holdsCheckpointer(l Module) (found bool) {
	if v := reflect.ValueOf(l); v.Kind() == reflect.Pointer && !v.IsNil() && v.Elem().Kind() == reflect.Struct {
		visit(l, &visitor{quick: true, before: func(_ string, v reflect.Value, _ bool) {
			_, ok := checkpointerOf(v)
			found = found || ok
		}})
	}
	return found
}

// checkpointed applies the layers in segments.
func (s *Sequential) checkpointed(x *tensor.Tensor) *tensor.Tensor {
	for _, g := range s.segments {
		f := func(x *tensor.Tensor) *tensor.Tensor { return through(g.layers, x) }
		if g.checkpoint {
			x = autograd.Checkpoint(f, x)
		} else {
			x = f(x)
		}
	}
	return x
}

// with returns m with other tensors.
func (m Masks) with(mask, padding *tensor.Tensor) Masks {
	m.Mask, m.KeyPadding = mask, padding
	return m
}
