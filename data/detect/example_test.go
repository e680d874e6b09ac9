package detect_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/flambeau-go/flambeau/data/detect"
	"github.com/flambeau-go/flambeau/data/table"
)

// The program gets only a path, and opens the data that it finds there.
func Example() {
	dir, err := os.MkdirTemp("", "data")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "irises.csv")
	if err := os.WriteFile(path, []byte("length;width;kind\n5.1;3.5;setosa\n7;3.2;versicolor\n"), 0o644); err != nil {
		fmt.Println(err)
		return
	}
	found, err := detect.Path(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s separated by %q\n", found.Kind, found.Comma)
	t, err := found.Table(true, table.Config{Target: "-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(t.Columns, t.Classes)
	// Output:
	// csv separated by ';'
	// [length width] [setosa versicolor]
}
