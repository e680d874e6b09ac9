//flambeau:ignore unusedmode,nesteddo this file has none of these mistakes

package misuse

import "github.com/flambeau-go/flambeau/tensor"

func ignoredFile(x *tensor.Tensor) (y *tensor.Tensor) {
	tensor.Do(func(*tensor.Scope) { y = x.Exp() }, tensor.NoGrad())
	tensor.NewScope() // want unclosedscope "never closed"
	return y
}

// ignoredFunction has a mistake that the next comment covers, and one that it does not.
//
//flambeau:ignore unusedmode for the test
func ignoredFunction(x *tensor.Tensor) (y *tensor.Tensor) {
	tensor.Do(func(*tensor.Scope) { y = x.Exp() }, tensor.NoGrad())
	//flambeau:ignore unclosedscope
	tensor.NewScope() // want unclosedscope "never closed"
	return y
}
