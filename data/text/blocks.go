package text

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

// Blocks is a dataset of blocks of a sequence of tokens. X is a block of tokens. Y holds, for each
// token of X, the token that follows it. Both are int64 [length].
type Blocks struct {
	tokens         []int32
	length, stride int
}

var _ data.Batcher = (*Blocks)(nil)

// NewBlocks makes samples from blocks of length+1 tokens. A sample's X is a block without its last
// token, and Y is the block without its first token. Successive blocks begin stride tokens apart. A
// stride of 0 means length, so that every token is predicted once. With a stride of 1, a block
// begins at every token. Tokens left over at the end are in no block. If there are fewer than
// length+1 tokens, the error is an *[Error]. NewBlocks copies the tokens.
func NewBlocks(tokens []int, length, stride int) (*Blocks, error) {
	switch {
	case length < 1 || stride < 0:
		return nil, wrong("", "blocks of %d tokens, %d apart", length, stride)
	case len(tokens) <= length:
		return nil, wrong("", "%d tokens do not fill one block of %d and the token after it", len(tokens), length)
	}
	if stride == 0 {
		stride = length
	}
	b := &Blocks{make([]int32, len(tokens)), length, stride}
	for i, id := range tokens {
		if id < 0 || id > math.MaxInt32 {
			return nil, wrong("", "token %d is %d", i, id)
		}
		b.tokens[i] = int32(id)
	}
	return b, nil
}

// Len returns the number of blocks.
func (b *Blocks) Len() int { return (len(b.tokens)-1-b.length)/b.stride + 1 }

// Get returns block i as slices of int64.
func (b *Blocks) Get(i int) (data.Sample, error) {
	if i < 0 || i >= b.Len() {
		return data.Sample{}, fmt.Errorf("index %d is out of range for %d blocks", i, b.Len())
	}
	x, y := make([]int64, b.length), make([]int64, b.length)
	b.fill(i, x, y)
	return data.Sample{X: x, Y: y}, nil
}

func (b *Blocks) fill(i int, x, y []int64) {
	for k, id := range b.tokens[i*b.stride : i*b.stride+b.length+1] {
		if k < b.length {
			x[k] = int64(id)
		}
		if k > 0 {
			y[k-1] = int64(id)
		}
	}
}

// GetBatch returns the blocks of the given indexes as tensors [blocks, length].
func (b *Blocks) GetBatch(index []int) (x, y *tensor.Tensor, err error) {
	xs, ys := make([]int64, len(index)*b.length), make([]int64, len(index)*b.length)
	for k, i := range index {
		if i < 0 || i >= b.Len() {
			return nil, nil, fmt.Errorf("index %d is out of range for %d blocks", i, b.Len())
		}
		b.fill(i, xs[k*b.length:(k+1)*b.length], ys[k*b.length:(k+1)*b.length])
	}
	err = tensor.Try(func() { x, y = tensor.From(xs, len(index), b.length), tensor.From(ys, len(index), b.length) })
	return x, y, err
}

// Pad returns sequences of tokens as one int64 tensor ids, [sequences, longest], in scope s.
// Shorter sequences are padded at their end with the token pad. The result mask has the type and
// shape of ids. It is 1 for tokens of a sequence and 0 for padding. If there are no sequences, the
// error is an *[Error].
func Pad(s *tensor.Scope, seqs [][]int, pad int) (ids, mask *tensor.Tensor, err error) {
	longest := 0
	for _, q := range seqs {
		longest = max(longest, len(q))
	}
	if longest == 0 {
		return nil, nil, wrong("", "there are no tokens in %d sequences", len(seqs))
	}
	flat, real := make([]int64, len(seqs)*longest), make([]int64, len(seqs)*longest)
	for i, q := range seqs {
		for k := range longest {
			at := i*longest + k
			if k < len(q) {
				flat[at], real[at] = int64(q[k]), 1
			} else {
				flat[at] = int64(pad)
			}
		}
	}
	err = tensor.Try(func() { ids, mask = s.From(flat, len(seqs), longest), s.From(real, len(seqs), longest) })
	return ids, mask, err
}
