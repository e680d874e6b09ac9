package main

func Example() {
	main()
	// Output:
	// 30
	// tensor([[2., 4.],
	//         [6., 8.]])
}
