//go:build !unix

package main

import "time"

var began = time.Now()

// processorTime returns the elapsed time in seconds, because this system does not report a
// process's CPU time.
func processorTime() float64 { return time.Since(began).Seconds() }
