package tensor

import (
	"sync"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// A cache keeps the value of each key once the value was made. The zero value is ready.
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

// castProgram returns the program that converts elements. The parameter from is their type, and the
// parameter to is the new type. The program copies if the types are equal.
func castProgram(from, to dtype.Type) *expr.Program {
	return castPrograms.get([2]dtype.Type{from, to}, func() *expr.Program {
		return expr.MustLower([]*expr.Expr{expr.X(0)}, []dtype.Type{to}, []dtype.Type{from}, -1)
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
