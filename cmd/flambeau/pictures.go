package main

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/data/vision"
)

// largestChosen is the largest side, in pixels, to which images are resized if --size is absent. It
// is the image size for which ResNets and ViTs are published.
const largestChosen = 224

// commonSize returns the side of the squares to which images of several sizes are resized. It is
// the median of the images' shorter sides, at most largestChosen. For a ViT it is a multiple of 16.
// It is 0 if all images have the same size. note explains the choice to the user.
func commonSize(f *vision.Folder, model string) (size int, note string, err error) {
	type dims struct{ h, w int }
	list := make([]dims, f.Len())
	errs := make([]error, runtime.GOMAXPROCS(0))
	var next atomic.Int64
	var all sync.WaitGroup
	for w := range errs {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(list) && errs[w] == nil; i = int(next.Add(1)) - 1 {
				list[i].h, list[i].w, errs[w] = f.Size(i)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, "", err
		}
	}
	count := map[dims]int{}
	var shorter []int
	for _, d := range list {
		count[d]++
		shorter = append(shorter, min(d.h, d.w))
	}
	if len(count) < 2 {
		return 0, "", nil
	}
	slices.Sort(shorter)
	median := shorter[len(shorter)/2]
	why := "the median of their shorter sides"
	if size = median; size > largestChosen {
		size, why = largestChosen, fmt.Sprintf("as the median of their shorter sides, %d, is more", median)
	}
	if model == "vit" && size%16 != 0 {
		size, why = max(size/16*16, 16), fmt.Sprintf("a multiple of 16 by %s, %d", "the median of their shorter sides", median)
	}
	small, large := slices.MinFunc(list, func(a, b dims) int { return a.h*a.w - b.h*b.w }), slices.MaxFunc(list, func(a, b dims) int { return a.h*a.w - b.h*b.w })
	return size, fmt.Sprintf("the pictures have %d sizes, from %d×%d to %d×%d pixels: they are resized to %d×%d, %s; --size N chooses another",
		len(count), small.w, small.h, large.w, large.h, size, size, why), nil
}
