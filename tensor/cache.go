package tensor

import (
	"sync"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// A cache computes the value of each key once, and keeps it. The zero value is ready for use.
type cache[K comparable, V any] struct {
	mu sync.RWMutex
	m  map[K]V
}

func (c *cache[K, V]) get(k K, make_ func() V) V {
	c.mu.RLock()
	v, ok := c.m[k]
	c.mu.RUnlock()
	if ok {
		return v
	}
	v = make_()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = map[K]V{}
	}
	c.m[k] = v
	return v
}

var castPrograms cache[[2]dtype.Type, *expr.Program]

// castProgram returns the program that converts elements of type src to type dst. The program
// copies if the types are equal.
func castProgram(src, dst dtype.Type) *expr.Program {
	return castPrograms.get([2]dtype.Type{src, dst}, func() *expr.Program {
		return expr.MustLower([]*expr.Expr{expr.X(0)}, []dtype.Type{dst}, []dtype.Type{src}, -1)
	})
}

var addPrograms cache[[2]dtype.Type, *expr.Program]

// addProgram returns the program that adds an element of type b to an element of type a. The sum
// has type a.
func addProgram(a, b dtype.Type) *expr.Program {
	return addPrograms.get([2]dtype.Type{a, b}, func() *expr.Program {
		return expr.MustLower([]*expr.Expr{expr.X(0).Add(expr.X(1))}, []dtype.Type{a}, []dtype.Type{a, b}, -1)
	})
}
