package callsite

import "testing"

func TestOutside(t *testing.T) {
	for _, c := range []struct {
		function, file string
		outside        bool
		within         string
	}{
		{"main.main", "main.go", true, ""},
		{"runtime.goexit", "asm.s", false, ""},
		{"reflect.Value.call", "value.go", false, ""},
		{"sync.(*WaitGroup).Go.func1", "waitgroup.go", false, ""},
		{"slices.SortFunc[...]", "sort.go", false, ""},
		{"github.com/flambeau-go/flambeau/tensor.alloc", "storage.go", false, "tensor.alloc"},
		{"github.com/flambeau-go/flambeau/tensor_test.TestX", "x_test.go", true, "tensor_test.TestX"},
		{"github.com/flambeau-go/flambeau/examples/digits.main", "main.go", true, "examples/digits.main"},
		{"github.com/flambeau-go/flambeau/cmd/flambeau.main", "main.go", true, "cmd/flambeau.main"},
		{"github.com/flambeau-go/flambeau-extra/x.F", "x.go", true, ""},
	} {
		if got := Outside(c.function, c.file); got != c.outside {
			t.Errorf("Outside(%s) is %v", c.function, got)
		}
		if got, ok := Within(c.function); got != c.within || ok != (c.within != "") {
			t.Errorf("Within(%s) is %q, %v", c.function, got, ok)
		}
	}
}
