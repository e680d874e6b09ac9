package device

import "github.com/flambeau-go/flambeau/expr"

// Preparer is satisfied by devices that load code when it is first used, which takes memory: PrepareMultiMap does all of that for a program's
// [MultiMapper] ahead, so that launches which belong together fail before the first of them or not for want of it.
type Preparer interface {
	PrepareMultiMap(p *expr.Program) error
}
