package cuda

import (
	"fmt"
	"slices"
	"strings"
)

// usable lists the libraries that FLAMBEAU_LIBS can turn on.
var usable = []string{"cublaslt"}

// libsError says that FLAMBEAU_LIBS names an unknown library.
type libsError struct{ value, name string }

// Error names the unknown library and the libraries that FLAMBEAU_LIBS accepts.
func (e *libsError) Error() string {
	return fmt.Sprintf("FLAMBEAU_LIBS is %q, in which %q is no library that is known; want a list of %s", e.value, e.name, strings.Join(usable, ","))
}

// parseLibs splits a value of FLAMBEAU_LIBS, which is a list of names separated by commas. If a
// name is unknown, the error is a *libsError.
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
