package nn

import "testing"

// typeOfMethod finds a layer's type in the method name that the runtime reports.
func TestTypeOfMethod(t *testing.T) {
	for name, want := range map[string]struct {
		typ     string
		pointer bool
	}{
		"github.com/flambeau-go/flambeau/nn.(*Linear).Forward": {"Linear", true},
		"github.com/flambeau-go/flambeau/nn.ReLU.Forward":      {"ReLU", false},
		"main.(*Net).Forward.func1":                            {"Net", true},
		"main.(*Pair[...]).Forward":                            {"Pair", true},
		"main.Pair[...].Forward":                               {"Pair", false},
		"example.com/a.b/c%2ed.(*Net).Forward":                 {"Net", true},
		"":                                                     {"layer", false},
	} {
		if typ, pointer := typeOfMethod(name); typ != want.typ || pointer != want.pointer {
			t.Errorf("%q: %q, %v", name, typ, pointer)
		}
	}
}

func TestModuleNames(t *testing.T) {
	inner := NewLinear(2, 3)
	m := NewSequential(inner, &ReLU{})
	names := ModuleNames(m, "net")
	if names[&inner.Base] != "0" || names[&m.Base] != "net" || len(names) != 3 {
		t.Errorf("%v", names)
	}
}
