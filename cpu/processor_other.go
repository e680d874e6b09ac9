//go:build !linux

package cpu

// waker is needed on Linux only.
type waker struct{}

func (*waker) before() {}
func (*waker) after()  {}
func (*waker) leave()  {}
