package fetch

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// What an *[Error] can be, for errors.Is.
var (
	ErrOffline  = errors.New("there is no network")
	ErrDigest   = errors.New("the digest is wrong")
	ErrTooLarge = errors.New("the file is too large")
	ErrNoDigest = errors.New("the file has no digest to check it by")
)

// An Error is a file that could not be had.
type Error struct {
	URL  string // where it is published
	Path string // where it belongs on this machine
	Kind error  // one of this package's Err values, or nil
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

// A StatusError is an answer of a server that is not the file.
type StatusError struct {
	Code  int           // of HTTP
	Text  string        // "404 Not Found"
	After time.Duration // to wait before the next try, if the server says so
}

func (e *StatusError) Error() string { return "the server answers " + e.Text }

// temporary reports whether another try makes sense.
func (e *StatusError) temporary() bool {
	switch e.Code {
	case 408, 425, 429, 500, 502, 503, 504:
		return true
	}
	return false
}

// A diskError is a failure of this machine's disk: another server does not help.
type diskError struct{ err error }

func (e *diskError) Error() string { return e.err.Error() }
func (e *diskError) Unwrap() error { return e.err }

// A redirectError is a redirect that is not followed.
type redirectError struct{ msg string }

func (e *redirectError) Error() string { return e.msg }
