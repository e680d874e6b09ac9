package misuse

import (
	"fmt"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

func given(cond bool) {
	x := tensor.From([]float32{1, 2})
	w := tensor.Ones(2).RequiresGrad()
	v := tensor.Ones(2)
	v.RequiresGrad()
	again := tensor.Ones(2)
	maybe := tensor.Ones(2)
	twice := tensor.Ones(2)
	returned := tensor.Ones(2)
	other := tensor.Ones(2)
	later := tensor.Ones(2)
	tensor.Do(func(s *tensor.Scope) {
		y := s.From(x)
		fmt.Println(x.Shape(), y) // its shape is still known
		y.Add(x)                  // want givenaway "x was given away by s.From on line 23"
		if cond {
			x.Exp() // want givenaway "lend it there with x.In.s."
			s.From(maybe)
		}
		maybe.Exp()
		s.From([]float32{1})
		s.From(w)
		w.Exp() // a leaf that requires a gradient stays
		s.From(v)
		v.Exp()
		again = s.From(again)
		again.Exp()
		nn.CrossEntropy(s.From(twice), s.From(twice)) // want givenaway "twice was given away"
		x.In(s).Exp()                                 // want givenaway "x was given away"
		_ = tensor.Cat(0, y, x)                       // want givenaway "x was given away"
	})
	x.Item() // want givenaway "x was given away"
	tensor.Do(func(s *tensor.Scope) {
		if cond {
			return
		}
		s.From(returned)
	})
	returned.Exp()
	tensor.Root().From(other) // the root gives itself what it has
	other.Exp()
	s := tensor.NewScope()
	defer s.Close()
	s.From(later)
	fmt.Println(tensor.Data[float32](later)) // want givenaway "given away by s.From"
}

func unknown(s *tensor.Scope, x *tensor.Tensor) {
	s.From(x) // s may be the root, x a tensor of a scope: both stay
	x.Exp()
	for range 3 {
		z := tensor.Ones(2)
		s.From(z)
		z.Exp()
	}
}

func batches(loader *data.Loader, m model) (kept []*tensor.Tensor) {
	for batch, err := range loader.Batches() {
		if err != nil {
			return
		}
		tensor.Do(func(s *tensor.Scope) {
			loss := nn.CrossEntropy(m.Forward(s.From(batch.X)), s.From(batch.Y))
			loss.Backward()
			fmt.Println(batch.Y.Floats()) // want givenaway "batch.Y was given away by s.From on line 74"
		})
		batch.X.Exp() // want givenaway "batch.X was given away"
	}
	for batch := range loader.Batches() {
		tensor.Do(func(s *tensor.Scope) {
			batch.Into(s)
			s.From(batch.X).Exp()
			batch.X.Exp()
		})
	}
	for batch := range loader.Batches() {
		tensor.Do(func(s *tensor.Scope) {
			batch.X.In(s).Exp()
			kept = append(kept, batch.X) // nobody took it
		})
	}
	return kept
}

func keptBeyond(loader *data.Loader, m model, home *tensor.Tensor) {
	var last, loss, held, mixed, inner, older *tensor.Tensor
	var all []*tensor.Tensor
	outs := []*tensor.Tensor{}
	total := 0.0
	for batch := range loader.Batches() {
		tensor.Do(func(s *tensor.Scope) {
			x := s.From(batch.X)
			y := m.Forward(x).Relu()
			last = y
			all = append(all, y, x.Exp())
			loss = nn.CrossEntropy(y, s.From(batch.Y))
			outs = append(outs, y.Exp())
			total += loss.Detach().Item()
			mixed = y
			older = home.Add(home)
			s.Do(func(c *tensor.Scope) { inner = y.In(c).Exp() })
			fmt.Println(inner.Item()) // want keptresult "inner belongs to the scope c"
		})
		tensor.Do(func(s *tensor.Scope) {
			held = s.Ones(2)
			s.Close(held)
		})
		mixed = home
	}
	fmt.Println(last.Shape(), last.Item()) // want keptresult "last belongs to the scope s of line 102.*keep it with s.Close.last."
	fmt.Println(total, held.Item(), mixed.Item(), older.Item())
	_ = tensor.Cat(0, all...) // want keptresult "all belongs to the scope s"
	outs[0].Backward()        // want keptresult "outs belongs to the scope s"
	tensor.Do(func(s *tensor.Scope) {
		loss.In(s).Exp() // want keptresult "loss belongs to the scope s"
	})
}

func keptInside(f func(func())) {
	var y *tensor.Tensor
	show := func() { fmt.Println(y.Item()) }
	tensor.Do(func(s *tensor.Scope) {
		y = s.Ones(1)
		show()
		s.Do(func(c *tensor.Scope) { y.In(c).Exp() })
	})
	defer f(func() { y.Item() })
	var z *tensor.Tensor
	p := &z
	tensor.Do(func(s *tensor.Scope) { z = s.Ones(1) })
	*p = tensor.Ones(1)
	z.Item()
}
