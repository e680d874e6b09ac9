package table_test

import (
	"fmt"
	"strings"

	"github.com/flambeau-go/flambeau/data/table"
)

const irises = `length,width,kind
5.1,3.5,setosa
7.0,3.2,versicolor
6.3,,virginica
`

// A table becomes inputs and classes. The mean of the column replaces a missing value.
func Example() {
	t, err := table.Read(strings.NewReader(irises), table.Config{Target: "kind", Missing: table.Mean})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(t.X.Shape(), t.Columns)
	fmt.Println(t.Y, t.Classes)

	_, err = table.Read(strings.NewReader(irises), table.Config{Target: "kind"})
	fmt.Println(err)
	// Output:
	// [3, 2] [length width]
	// tensor([0, 1, 2]) [setosa versicolor virginica]
	// table: input:4:5: column "width": the value is missing; fill it in or leave the row out, as Config.Missing can
}

func ExampleTable_Dataset() {
	t, err := table.Read(strings.NewReader(irises), table.Config{Columns: []string{"width"}, Target: "length", Number: true, Missing: table.Drop})
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := t.Dataset()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Len(), "rows,", t.Dropped, "dropped")
	// Output: 2 rows, 1 dropped
}
