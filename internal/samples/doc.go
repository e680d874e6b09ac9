// Package samples compares operators, layers and optimizers with samples from PyTorch's own test
// suite. They come from its tables op_db, module_db and optim_db. Each entry of a table is one
// operator, layer or optimizer of PyTorch. Each sample is one call: one that PyTorch's tests make,
// or one that PyTorch must refuse. This package has only tests and data.
//
// Most entries have an adapter, which makes the corresponding call here. An entry without an
// adapter has a row in testdata/ops.tsv, modules.tsv or optims.tsv with the reason. The results,
// gradients and second gradients of every sample must agree by [golden.Rule]. If they do not, a row
// in one of these files names the entry, the types, the difference and the reason. A row that no
// sample needs fails the test.
//
// Samples of float32 run four times: as they are, in float64, with gaps between the elements in
// memory, and with another order of dimensions in memory. A few samples run on the emulated GPU
// too. FLAMBEAU_SAMPLES may name a folder that _golden/opdb.py --all and moduledb.py --all filled.
// With FLAMBEAU_SOAK=1 the samples in that folder are compared as well. They may differ by twice
// the error that [golden.Rule] allows, or need a row in testdata/soak.tsv. An unneeded row in that
// file is allowed if the folder is not complete. A folder may lack entries, or samples that the
// scripts' flag --most left out. The log says what the folder lacks, and counts its samples.
// FLAMBEAU_SAMPLES_ONLY=add selects one entry.
//
// A row has six columns.
//
//   - The entry.
//   - The types, or one of error (inputs that must be refused), float64, strided, permuted.
//   - What fails: entry (no adapter), result, gradient, second, refused, taken (no error, but
//     PyTorch returns one), lacking (a missing argument).
//   - A part of the message, or a limit of the error: ×4 allows four times what the rule allows,
//     and ≤1e-6 allows an error of at most 1e-6. Rows with a limit are needed where equal numbers
//     cancel, because the rule then allows almost no error.
//   - A class of reasons, as listed in exceptions_test.go.
//   - The reason.
//
// # Data
//
// _golden/opdb.py, moduledb.py and optimdb.py write the files in testdata. They are gzipped
// safetensors whose metadata has a key "rows", a list of JSON objects. The objects for op_db have
//
//	op, n, type   the entry's name with its variant, the sample's index in PyTorch's list, its
//	              type
//	from          "sample", "reference" (further samples), "error" (to be refused), "entry" (last
//	              row of an entry: its types, and in "left" what could not be recorded)
//	args, kw      arguments of the operator, by position and by name
//	leaves        which of the tensors in args and kw, in that order, have a gradient
//	out           results: "own" in the sample's type, "ref" in float64 of the same operands,
//	              "terms" as below; or "value", a result that is no tensor
//	grads         the same for gradients of Σ result × seed by each leaf, null for none
//	seconds       the same for gradients of Σ gradient × seed
//	random        true where only types and shapes can be compared
//	error         text of PyTorch's error
//
// A value is a JSON value, or an object with one of these keys: T (a tensor's name in the file,
// with "strides" if it is not contiguous), float ("inf"), dtype, slice, ellipsis, tuple, dict,
// layout, device. The seed of element i of the k-th tensor is ((37i + 11k + 5) mod 64 · 2 - 63) /
// 32.
//
// The terms of an element measure how sensitive the element is to rounding errors. For a sum, they
// are about the sum of the magnitudes of its terms. They are measured in a few tries. Each try
// changes every operand and every intermediate number by a relative 2⁻²⁴. The terms are the largest
// change of the element in float64, divided by 2⁻²⁴. They are at most 256 times the tensor's
// largest element, so that a discontinuity does not permit arbitrary errors. The file holds the
// terms as powers of two: the exponent plus 128. The sign of a zero gradient is not compared.
package samples
