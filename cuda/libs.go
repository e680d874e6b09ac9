package cuda

import (
	"fmt"
	"slices"
	"strings"
)

// usable are the libraries that FLAMBEAU_LIBS may turn on.
var usable = []string{"cublaslt"}

// A libsError is a FLAMBEAU_LIBS that names what is no library.
type libsError struct{ value, name string }

// Error names the libraries that there are.
func (e *libsError) Error() string {
	return fmt.Sprintf("FLAMBEAU_LIBS is %q, in which %q is no library that is known; want a list of %s", e.value, e.name, strings.Join(usable, ","))
}

// parseLibs returns the names in a value of FLAMBEAU_LIBS, which commas part. The error is a
// *libsError.
func parseLibs(value string) ([]string, error) {
	if value == "" {
		return nil, nil
	}
	list := strings.Split(value, ",")
	for _, name := range list {
		if !slices.Contains(usable, name) {
			return nil, &libsError{value, name}
		}
	}
	return list, nil
}
