package data_test

import (
	"bufio"
	"fmt"
	"iter"
	"log"
	"math/rand/v2"
	"strings"

	"github.com/flambeau-go/flambeau/data"
)

// lines returns a stream of the lines of a text.
func lines(text string) data.Stream {
	return data.StreamFunc(func(int) iter.Seq2[data.Sample, error] {
		return func(yield func(data.Sample, error) bool) {
			in := bufio.NewScanner(strings.NewReader(text))
			for n := 0; in.Scan(); n++ {
				if !yield(data.Sample{X: in.Text(), Y: n}, nil) {
					return
				}
			}
			if err := in.Err(); err != nil {
				yield(data.Sample{}, err)
			}
		}
	})
}

// A stream has no length. Its samples become batches like those of a dataset.
func ExampleNewStreamLoader() {
	s, err := data.ShuffleStream(lines("one\ntwo\nthree\nfour\nfive"), 3, 1)
	if err != nil {
		log.Fatal(err)
	}
	loader, err := data.NewStreamLoader(s, data.Config{Batch: 2, Workers: 2})
	if err != nil {
		log.Fatal(err)
	}
	for batch, err := range loader.Batches() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(batch.Nested.X, batch.Y)
	}
	// Output:
	// [two one] tensor([1, 0])
	// [four five] tensor([3, 4])
	// [three] tensor([2])
}

// Each of several processes reads its part of a stream.
func ExampleShardStream() {
	for rank := range 2 {
		s, err := data.ShardStream(lines("a\nb\nc"), rank, 2)
		if err != nil {
			log.Fatal(err)
		}
		for v := range s.Samples(0) {
			fmt.Println(rank, v.X)
		}
	}
	// Output:
	// 0 a
	// 0 c
	// 1 b
}

// Interleave reads several streams at the same time. The order is the same in every run.
func ExampleInterleave() {
	s, err := data.Interleave(16, lines("a1\na2\na3"), lines("b1"), lines("c1\nc2"))
	if err != nil {
		log.Fatal(err)
	}
	for v := range s.Samples(0) {
		fmt.Print(v.X, " ")
	}
	fmt.Println()
	// Output: a1 b1 c1 a2 c2 a3
}

// FilterStream makes a stream from another stream, as MapStream and ConcatStreams do.
func ExampleFilterStream() {
	s := data.ConcatStreams(lines("go\n\nstop"), lines("again"))
	s = data.FilterStream(s, func(v data.Sample) bool { return v.X != "" })
	s = data.MapStream(s, func(v data.Sample) (data.Sample, error) {
		v.X = strings.ToUpper(v.X.(string))
		return v, nil
	})
	for v := range data.TakeStream(s, 2).Samples(0) {
		fmt.Println(v.X)
	}
	// Output:
	// GO
	// STOP
}

// StreamOf makes a stream from a dataset.
func ExampleStreamOf() {
	for v := range data.StreamOf(table{3}, nil).Samples(0) {
		fmt.Println(v.X, v.Y)
	}
	// Output:
	// [0] 0
	// [1] 1
	// [2] 4
}

func ExampleRandomSplit() {
	parts, err := data.RandomSplit(table{10}, 1, 8, 2)
	if err != nil {
		log.Fatal(err)
	}
	train, test := parts[0], parts[1]
	fmt.Println(train.Len(), test.Len(), test.Index)
	// Output: 8 2 [0 5]
}

func ExampleRandomSplitFractions() {
	parts, err := data.RandomSplitFractions(table{10}, 1, 0.75, 0.25)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(parts[0].Len(), parts[1].Len())
	// Output: 8 2
}

func ExampleNewConcat() {
	both := data.NewConcat(table{3}, table{2})
	s, err := both.Get(4)
	fmt.Println(both.Len(), s.X, err)
	// Output: 5 [1] <nil>
}

// Map changes the samples of a dataset, here with random numbers.
func ExampleMap() {
	moved := data.Map(table{3}, func(s data.Sample, rng *rand.Rand) (data.Sample, error) {
		x := s.X.([]float32)
		s.X = []float32{x[0] + float32(rng.IntN(10))/10}
		return s, nil
	})
	s, err := moved.Get(2)
	again, _ := moved.Get(2)
	fmt.Println(s.X.([]float32)[0] >= 2, s.X.([]float32)[0] == again.X.([]float32)[0], s.Y, err)
	// Output: true true 4 <nil>
}
