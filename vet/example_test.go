package vet_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/vet"
)

// Each analyzer has a name. A comment with this name and a reason suppresses a report, such as
// "//flambeau:ignore unclosedscope the goroutine below closes it".
func Example() {
	for _, a := range vet.Analyzers {
		fmt.Println(a.Name)
	}
	// Output:
	// unusedmode
	// missedmode
	// nesteddo
	// unclosedscope
	// givenaway
	// keptresult
}
