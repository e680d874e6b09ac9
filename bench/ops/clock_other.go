//go:build !unix

package main

import (
	"log"
	"time"
)

// processTime ends the program, because this system does not report a process's CPU time.
func processTime() time.Duration {
	log.Fatal("--cpu-time needs a Unix")
	return 0
}
