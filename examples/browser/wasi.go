//go:build wasip1

package main

import (
	"fmt"
	"log"
)

// main runs the page's training and prints the result. Under WASI there is no page.
func main() {
	c, err := newClassifier()
	if err != nil {
		log.Fatal(err)
	}
	for n := range 10 {
		last := 0.0
		if err := c.epoch(func(loss float64) { last = loss }); err != nil {
			log.Fatal(err)
		}
		share, err := c.accuracy()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("epoch %d: loss %.4f, accuracy %.1f %%\n", n+1, last, 100*share)
	}
}
