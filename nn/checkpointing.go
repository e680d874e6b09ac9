package nn

import (
	"math"
	"reflect"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/tensor"
)

// Checkpointing is embedded in a layer that can recompute its forward pass in Backward, instead of
// storing the intermediate results until then. Such a layer passes its computation to the method
// Checkpoint. [SetCheckpointing] switches recomputation on in all such layers of a model. In the
// zero value recomputation is off.
type Checkpointing struct{ enabled bool }

// SetCheckpointing switches recomputation on or off.
func (c *Checkpointing) SetCheckpointing(enabled bool) { c.enabled = enabled }

// Checkpointing reports whether recomputation is on.
func (c *Checkpointing) Checkpointing() bool { return c.enabled }

// Checkpoint returns f(x…). If recomputation is on and gradients are recorded, it calls
// [autograd.Checkpoint]. Any x may be nil. Every tensor that f uses and that may be freed before
// Backward, such as a mask, must be in x.
func (c *Checkpointing) Checkpoint(f func(x ...*tensor.Tensor) *tensor.Tensor, x ...*tensor.Tensor) *tensor.Tensor {
	if !c.enabled {
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

// checkpointer is a layer that can recompute its forward pass.
type checkpointer interface{ SetCheckpointing(on bool) }

// SetCheckpointing switches the recomputation of activations on or off, in every part of a model
// that can recompute. It returns the number of these parts. Recomputation saves memory at the cost
// of about one more forward pass, and changes no bit of the results. SetCheckpointing is Hugging
// Face's gradient_checkpointing_enable.
//
// The parts are the layers of transformers ([TransformerEncoderLayer], [TransformerDecoderLayer])
// and the blocks of package models' GPT, BERT, ViT and ResNet. Each part keeps only its input.
// [Sequential] and models' MLP are parts too. Both are chains of layers.
//
// A Sequential divides its layers into segments. A layer that contains layers is one segment,
// unless it contains a part other than a Sequential. A run of n layers that contain no layers
// becomes about √n segments. The last segment is not recomputed, because Backward needs it first.
//
// Recomputation stays off in a part within another part. Otherwise the inner part would be computed
// three times. To be a part, a layer from outside this package embeds [Checkpointing] or has a
// method SetCheckpointing(bool).
func SetCheckpointing(model any, enabled bool) int {
	n, covered := 0, 0
	whole := map[place]bool{} // children of a Sequential, each of which is one segment
	covers := func(v reflect.Value) bool {
		c, ok := checkpointerOf(v)
		_, sequential := c.(*Sequential)
		return ok && !sequential || v.CanAddr() && whole[place{v.Addr().Pointer(), v.Type()}]
	}
	visit(model, &visitor{quick: true,
		pre: func(_ string, v reflect.Value, embedded bool) {
			if embedded { // an embedded Checkpointing is switched by the method of the struct that embeds it
				return
			}
			if c, ok := checkpointerOf(v); ok {
				c.SetCheckpointing(enabled && covered == 0)
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
		post: func(_ string, v reflect.Value, embedded bool) {
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

// isSegment reports whether a layer of a Sequential is a segment by itself. This is the case if it
// contains layers and none of them can recompute, apart from Sequentials.
func isSegment(l Module) bool {
	v := reflect.ValueOf(l)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return false
	}
	if _, ok := l.(*Sequential); ok {
		return false
	}
	layers, knows := 0, false
	visit(l, &visitor{quick: true, pre: func(_ string, v reflect.Value, embedded bool) {
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

// A segment is a run of consecutive layers of a Sequential that are recomputed together.
type segment struct {
	layers     []Module
	checkpoint bool
}

// SetCheckpointing switches recomputation on or off for the layers that the chain has now. The
// function [SetCheckpointing] describes how it divides them.
func (s *Sequential) SetCheckpointing(enabled bool) {
	s.enabled, s.segments = enabled, nil
	if !enabled {
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

func holdsCheckpointer(l Module) (found bool) {
	if v := reflect.ValueOf(l); v.Kind() == reflect.Pointer && !v.IsNil() && v.Elem().Kind() == reflect.Struct {
		visit(l, &visitor{quick: true, pre: func(_ string, v reflect.Value, _ bool) {
			_, ok := checkpointerOf(v)
			found = found || ok
		}})
	}
	return found
}

func (s *Sequential) checkpointed(x *tensor.Tensor) *tensor.Tensor {
	for _, g := range s.segments {
		f := func(x *tensor.Tensor) *tensor.Tensor { return applyAll(g.layers, x) }
		if g.checkpoint {
			x = autograd.Checkpoint(f, x)
		} else {
			x = f(x)
		}
	}
	return x
}

func (m Masks) replaced(mask, padding *tensor.Tensor) Masks {
	m.Mask, m.KeyPadding = mask, padding
	return m
}
