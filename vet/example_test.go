package vet_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/vet"
)

// These are the names of the analyzers. A comment with a name suppresses a report:
// //flambeau:ignore unclosedscope the goroutine below closes it.
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
