//go:build !unix

package main

import (
	"log"
	"time"
)

// processTime is not available on this system.
func processTime() time.Duration {
	log.Fatal("--cpu-time needs a Unix")
	return 0
}
