// Package samples holds operators, layers and optimizers to samples of PyTorch's own test suite.
// They are of its tables op_db, module_db and optim_db. Each entry of these is something of
// PyTorch's, with calls that its tests make and calls that it must refuse. There is nothing here
// but tests and data.
//
// Every entry has an adapter, the call that is ours for it, or a row in testdata/ops.tsv,
// modules.tsv or optims.tsv with the reason why there is none. Every sample's results, gradients
// and second gradients are equal by [golden.Rule], or a row there names the entry, the types, what
// differs and why. A row that no sample needs fails the test.
//
// Samples of float32 go four times: as they are, in float64, and in memory with gaps and in another
// order. A few go on the emulated GPU too. With FLAMBEAU_SOAK=1 and FLAMBEAU_SAMPLES set to a
// folder that _golden/opdb.py --all and moduledb.py --all filled, the samples there are held to
// PyTorch as well, to twice what [golden.Rule] allows, or a row of testdata/soak.tsv. Rows there
// may go unneeded if the folder lacks an entry, or samples that --most left out: the log says so.
// It counts the samples of the folder too. FLAMBEAU_SAMPLES_ONLY=add chooses one entry.
//
// A row has six columns.
//
//   - The entry.
//   - The types, or error (inputs to refuse), float64, strided, permuted.
//   - What fails: entry (no adapter), result, gradient, second, refused, taken (no error where
//     PyTorch has one), lacking (an argument that is not there).
//   - A part of the message. Or ×4, off by no more than four times what the rule allows. Or ≤1e-6,
//     off by no more than that: where equal numbers cancel the rule allows next to nothing.
//   - A class of reasons, of which exceptions_test.go has the list.
//   - The reason.
//
// # Data
//
// _golden/opdb.py, moduledb.py and optimdb.py write the files in testdata: gzipped safetensors
// whose metadata has a key "rows", a list of JSON objects. Those of op_db have
//
//	op, n, type   the entry's name with its variant, the sample's place in PyTorch's list, its
//	              type
//	from          "sample", "reference" (more of them), "error" (to be refused), "entry" (the last
//	              row of an entry: its types, and in "left" what could not be written down)
//	args, kw      what the operator was called with, by place and by name
//	leaves        which of the tensors in args and kw, in that order, have a gradient
//	out           results: "own" in the sample's type, "ref" in float64 of the same operands,
//	              "terms" what it moves by; or "value", what is not a tensor
//	grads         the same for gradients of Σ result × seed by each leaf, null for none
//	seconds       the same for gradients of Σ gradient × seed
//	random        true where only types and shapes can be compared
//	error         what PyTorch says
//
// A value is JSON's, or an object with one of the keys T (a tensor's name in the file, with
// "strides" if it is not contiguous), float ("inf"), dtype, slice, ellipsis, tuple, dict, layout,
// device. The seed of element i of the k-th tensor is ((37i + 11k + 5) mod 64 · 2 - 63) / 32.
//
// The terms of an element are a power of two, written as its exponent plus 128. They are the
// largest change of it in float64, in a few tries, when every operand and every number on the way
// is changed by 2⁻²⁴ of itself, divided by 2⁻²⁴. It is the sum of what is added up in it, or its
// condition. It is at most 256 times the tensor's largest element, so that a jump excuses nothing.
// The sign of a gradient that is zero is not compared.
package samples
