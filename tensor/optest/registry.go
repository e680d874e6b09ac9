package optest

import (
	"reflect"
	"slices"

	"github.com/flambeau-go/flambeau/tensor"
)

// noValue lists the methods that return a tensor and compute nothing. Their own tests check them.
var noValue = map[string]string{
	"Grad": "what Backward collected", "TakeGrad": "what Backward collected", "RequiresGrad": "returns its operand", "SetRequiresGrad": "returns its operand",
	"To": "every operand on another device goes through it", "CUDA": "To by number", "CPU": "To the host", "PinMemory": "a copy: TestNonBlockingCopies",
	"SyncBatchNorm": "needs ranks: package dist holds it to batch_norm of the whole batch",
}

// functions lists the ops that are functions of package tensor, because reflection finds only
// methods. A file that adds rows for such functions adds their names in init.
var functions = []string{"Where", "Cat", "Stack", "HStack", "VStack", "Meshgrid", "MeshgridXY", "Einsum"}

// Unwalked returns the names that no row of the tables calls. It examines the declared elementwise
// ops and reductions, and the methods of *tensor.Tensor that return a tensor. Ops of a user need no
// row: name them in known.
func Unwalked(known ...string) []string {
	covered := map[string]bool{}
	for name := range noValue {
		covered[name] = true
	}
	for _, m := range methods {
		covered[m.name] = true
	}
	for _, m := range reduceMethods {
		covered[m.name] = true
	}
	for _, r := range table() {
		for _, m := range r.methods {
			covered[m] = true
		}
	}
	for _, s := range sources {
		covered[s.name] = true
	}
	for _, f := range inPlaceForms {
		covered[f.name+"InPlace"] = true
	}
	var missing []string
	for _, e := range tensor.Declared() {
		if _, ok := methods[e.Name]; !ok && !slices.Contains(known, e.Name) {
			missing = append(missing, e.Name)
		}
	}
	for _, r := range tensor.Reductions() {
		if _, ok := reduceMethods[r.Name]; !ok && !slices.Contains(known, r.Name) {
			missing = append(missing, r.Name)
		}
	}
	t := reflect.TypeFor[*tensor.Tensor]()
	for _, of := range []reflect.Type{t, reflect.TypeFor[tensor.Maker](), reflect.TypeFor[*tensor.Scope]()} {
		for i := range of.NumMethod() {
			m := of.Method(i)
			for o := range m.Type.NumOut() {
				if (m.Type.Out(o) == t || m.Type.Out(o) == reflect.SliceOf(t)) && !covered[m.Name] {
					missing = append(missing, "("+of.String()+")."+m.Name)
				}
			}
		}
	}
	for _, f := range functions {
		if !covered[f] {
			missing = append(missing, "tensor."+f)
		}
	}
	return missing
}
