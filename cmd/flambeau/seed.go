package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/flambeau-go/flambeau/checkpoint"
)

// seedFlag is the value of --seed: a number, or the word "random", for which the command draws a
// number.
type seedFlag struct {
	n     uint64
	drawn bool
}

// UnmarshalText parses the flag.
func (s *seedFlag) UnmarshalText(text []byte) (err error) {
	if string(text) == "random" {
		*s = seedFlag{uint64(rand.Uint32()), true}
		return nil
	}
	s.drawn = false
	if s.n, err = strconv.ParseUint(string(text), 10, 64); err != nil {
		return fmt.Errorf("%q is neither a number from 0 up nor random", text)
	}
	return nil
}

func (s seedFlag) String() string {
	if s.drawn {
		return "random"
	}
	return strconv.FormatUint(s.n, 10)
}

// print prints a seed that the command has drawn. If begun is true it prints nothing, because a
// training that resumes keeps its first seed.
func (s seedFlag) print(e *env, begun bool) {
	if s.drawn && !begun {
		fmt.Fprintf(e.err, "--seed random: %d was drawn; --seed %d repeats this training\n", s.n, s.n)
	}
}

// begun reports whether there is a checkpoint from which the training resumes. A checkpoint holds
// the seed.
func (c *trainCmd) begun() bool {
	_, err := checkpoint.Latest(c.Checkpoint)
	return err == nil
}
