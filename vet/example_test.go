package vet_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/vet"
)

// The names of the analyzers are those that a comment uses to suppress a report: //flambeau:ignore
// unclosedscope the goroutine below closes it.
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
