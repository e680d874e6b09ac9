package digits_test

import (
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/data/digits"
)

// The digits are embedded in the program, so nothing is downloaded.
func Example() {
	set, err := digits.Load()
	if err != nil {
		log.Fatal(err)
	}
	train, test := set.Split()
	fmt.Println(set.Len(), "digits:", train.Len(), "to train,", test.Len(), "to test")
	sample, err := set.Get(3)
	if err != nil {
		log.Fatal(err)
	}
	for row := range 8 {
		for _, p := range sample.X.([]float32)[8*row : 8*row+8] {
			fmt.Print(" .:#"[int(p*3.99):][:1])
		}
		fmt.Println("|")
	}
	fmt.Println("a", sample.Y)
	// Output:
	// 1797 digits: 1442 to train, 355 to test
	//   .##   |
	//  .#.#   |
	//    ##   |
	//    #:   |
	//     ::  |
	//      :. |
	//   . .#: |
	//   .##:  |
	// a 3
}
