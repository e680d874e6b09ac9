// Package misuse has each mistake that package vet finds, next to correct code.
package misuse

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

type model struct{ w *tensor.Tensor }

func (m model) Forward(x *tensor.Tensor) *tensor.Tensor { return x.Mul(m.w) }

func (m *model) bind(s *tensor.Scope) { m.w = m.w.In(s) }

func unusedModes(m model, x *tensor.Tensor) (y *tensor.Tensor) {
	tensor.Do(func(*tensor.Scope) { y = m.Forward(x) }, tensor.NoGrad())                      // want unusedmode "NoGrad does nothing here.*compute with x.In.s."
	tensor.Do(func(c *tensor.Scope) { y = m.Forward(x) }, tensor.Autocast(dtype.BF16))        // want unusedmode "Autocast does nothing here.*x.In.c."
	x.Scope().Do(func(_ *tensor.Scope) { y = x.Exp() }, tensor.NoGrad(), tensor.NoAutocast()) // want unusedmode "NoAutocast and NoGrad do nothing"
	tensor.Do(func(s *tensor.Scope) { y = m.Forward(x.In(s)); s.Close(y) }, tensor.NoGrad())  // right
	tensor.Do(func(*tensor.Scope) { fmt.Println("nothing of tensors") }, tensor.NoGrad())     // right
	tensor.Do(func(*tensor.Scope) { y = m.Forward(x) }, tensor.Named("step"))                 // right: for profiles
	tensor.Do(func(*tensor.Scope) { y = m.Forward(x) }, tensor.NoGrad())                      //flambeau:ignore unusedmode shows how to take it back

	tensor.Do(func(*tensor.Scope) { y = m.Forward(x) }, tensor.NoGrad() /* want unusedmode */) //flambeau:ignore nesteddo another one
	return y
}

func missedModes(m model, x, z *tensor.Tensor, pair struct{ a model }) (y *tensor.Tensor) {
	tensor.Do(func(s *tensor.Scope) {
		y = m.Forward(x.In(s))
		y = m.Forward(z)      // want missedmode "NoGrad does not reach this call.*older than the scope s; write z.In.s."
		y = pair.a.Forward(z) // want missedmode "write z.In.s."
		z.Exp()               // right: it may have no gradient anyway
		run := func() { m.Forward(z) }
		run()
		s.Close(y)
	}, tensor.NoGrad())
	tensor.Do(func(s *tensor.Scope) {
		x := x.In(s)
		z = z.In(s)
		y = m.Forward(x)
		y = m.Forward(z)
		m.w = m.w.In(s)
		s.Close(y)
	}, tensor.NoGrad())
	tensor.Do(func(s *tensor.Scope) {
		var own model
		own.w = s.Ones(2)
		y = own.Forward(x) // its weights belong to s
		s.Close(y)
	}, tensor.NoGrad())
	tensor.Do(func(s *tensor.Scope) {
		s.Ones(2)
		m.bind(s)
		y = m.Forward(z) // its weights belong to s
		s.Close(y)
	}, tensor.NoGrad())
	tensor.Do(func(s *tensor.Scope) {
		x := x.In(s)
		s.Do(func(c *tensor.Scope) { c.Ones(2); y = m.Forward(x) }, tensor.Autocast(dtype.BF16)) // x may have the mode around
		s.Close(y)
	}, tensor.NoGrad())
	tensor.Do(func(s *tensor.Scope) { s.Ones(2); y = m.Forward(z) }, tensor.Named("step")) // right: for profiles
	return y
}

func heldMode(m model, x *tensor.Tensor) (y *tensor.Tensor) {
	outer := tensor.NewScope(tensor.NoGrad())
	defer outer.Close()
	x = x.In(outer)
	outer.Do(func(s *tensor.Scope) { s.Ones(2); y = m.Forward(x) }, tensor.Autocast(dtype.BF16)) // x has a mode
	return y
}

func unusedNew(x *tensor.Tensor) float64 {
	s := tensor.NewScope(tensor.NoGrad()) // want unusedmode "no tensor belongs to the scope s"
	defer s.Close()
	return x.Exp().Item()
}

func usedNew(x *tensor.Tensor) float64 {
	s := tensor.NewScope(tensor.NoGrad())
	defer s.Close()
	return x.In(s).Exp().Item()
}

func nested(w *tensor.Tensor, run func(func())) {
	tensor.Do(func(s *tensor.Scope) {
		tensor.Do(func(c *tensor.Scope) { w.In(c).Fill(1) }) // want nesteddo "write s.Do, or tensor.Root"
		s.Do(func(c *tensor.Scope) {
			for range 2 {
				tensor.Do(func(u *tensor.Scope) { w.In(u).Fill(2) }) // want nesteddo "write c.Do"
			}
		})
		s.Do(func(c *tensor.Scope) { w.In(c).Fill(1) })
		tensor.Root().Do(func(c *tensor.Scope) { w.In(c).Fill(1) })
		run(func() { tensor.Do(func(c *tensor.Scope) { w.In(c).Fill(1) }) }) // who knows when it runs
		go func() { tensor.Do(func(c *tensor.Scope) { w.In(c).Fill(1) }) }()
	}, tensor.NoGrad())
	tensor.Do(func(*tensor.Scope) {
		tensor.Do(func(c *tensor.Scope) { w.In(c).Fill(1) }) // want nesteddo "name that one s"
	})
}

// keeps holds a scope.
type keeps struct{ s *tensor.Scope }

func scopes(x *tensor.Tensor, hold func(*tensor.Scope)) (named *tensor.Scope, k keeps) {
	a := tensor.NewScope() // want unclosedscope "the scope a is never closed: write defer a.Close"
	x.In(a).Exp()
	var b = a.New(tensor.NoGrad()) // want unclosedscope "the scope b is never closed"
	b.Zeros(2)
	tensor.NewScope()                      // want unclosedscope "this scope is never closed"
	_ = tensor.NewScope()                  // want unclosedscope "this scope is never closed"
	x.In(tensor.NewScope()).Exp()          // an operand: left alone
	fmt.Println(tensor.NewScope().Ones(2)) // want unclosedscope "this scope is never closed"

	closed := tensor.NewScope()
	x.In(closed)
	closed.Close()
	deferred := tensor.NewScope()
	defer deferred.Close()
	passed := tensor.NewScope()
	hold(passed)
	stored := tensor.NewScope()
	k.s = stored
	value := tensor.NewScope()
	end := value.Close
	defer end()
	held := tensor.NewScope()
	func() { held.Zeros(2) }() // lives with the function
	named = tensor.NewScope()
	return named, keeps{tensor.NewScope()}
}

func returned() *tensor.Scope {
	s := tensor.NewScope()
	s.Zeros(2)
	return s
}
