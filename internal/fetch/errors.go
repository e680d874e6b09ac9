package fetch

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// These are the kinds of an *[Error], to be tested by errors.Is.
var (
	ErrOffline  = errors.New("there is no network")
	ErrDigest   = errors.New("the digest is wrong")
	ErrTooLarge = errors.New("the file is too large")
	ErrNoDigest = errors.New("the file has no digest to check it by")
)

// An Error says that a file could not be fetched.
type Error struct {
	URL  string // address of the published file
	Path string // path of the file on this machine
	Kind error  // one of the package's Err values, or nil
	Err  error  // the cause
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("fetch: ")
	if e.URL != "" {
		b.WriteString(e.URL + ": ")
	}
	if e.Kind != nil && !errors.Is(e.Err, e.Kind) {
		b.WriteString(e.Kind.Error() + ": ")
	}
	fmt.Fprint(&b, e.Err)
	if e.Kind == ErrOffline {
		fmt.Fprintf(&b, "; download it where there is a network and put it at %s", e.Path)
	}
	return b.String()
}

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Kind == nil {
		return []error{e.Err}
	}
	return []error{e.Kind, e.Err}
}

// A StatusError is an HTTP answer that is not the file.
type StatusError struct {
	Code  int           // HTTP status code
	Text  string        // text of the status, for example "404 Not Found"
	After time.Duration // how long to wait before the next request; 0 if the server does not say
}

func (e *StatusError) Error() string { return "the server answers " + e.Text }

// temporary reports whether a later request may succeed.
func (e *StatusError) temporary() bool {
	switch e.Code {
	case 408, 425, 429, 500, 502, 503, 504:
		return true
	}
	return false
}

// A diskError is a failure of this machine's disk. Another server would not help.
type diskError struct{ err error }

func (e *diskError) Error() string { return e.err.Error() }
func (e *diskError) Unwrap() error { return e.err }

// A redirectError is a redirect that the client refuses to follow.
type redirectError struct{ msg string }

func (e *redirectError) Error() string { return e.msg }
