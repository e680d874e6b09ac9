//go:build !unix

package main

import (
	"log"
	"time"
)

// processTime is not known here.
func processTime() time.Duration {
	log.Fatal("--cpu-time needs a Unix")
	return 0
}
