package cpu

import "unsafe"

// gather copies n elements of the given size, which are stride bytes apart, to contiguous dst.
func gather(dst, src unsafe.Pointer, size, stride, n int) {
	switch {
	case stride == size:
		if n*size <= 64 && size == 4 { // for short runs, calling memmove takes longer
			d, s := at[uint32](dst, n), at[uint32](src, n)
			for i := range d {
				d[i] = s[i]
			}
			return
		}
		copy(at[byte](dst, n*size), at[byte](src, n*size))
	case stride == -size && size == 4:
		d, s := at[uint32](dst, n), at[uint32](unsafe.Add(src, -4*(n-1)), n)
		for i, v := range s {
			d[n-1-i] = v
		}
	case stride == 0:
		fillBits(dst, readBits(src, size), size, n)
	case size == 1:
		gatherAs[uint8](dst, src, stride, n)
	case size == 2:
		gatherAs[uint16](dst, src, stride, n)
	case size == 4:
		gatherAs[uint32](dst, src, stride, n)
	default:
		gatherAs[uint64](dst, src, stride, n)
	}
}

func gatherAs[T uint8 | uint16 | uint32 | uint64](dst, src unsafe.Pointer, stride, n int) {
	d := at[T](dst, n)
	i := 0
	for ; i+4 <= n; i += 4 {
		a, b := *(*T)(src), *(*T)(unsafe.Add(src, stride))
		src = unsafe.Add(src, 2*stride)
		d[i], d[i+1], d[i+2], d[i+3] = a, b, *(*T)(src), *(*T)(unsafe.Add(src, stride))
		if i+4 < n { // a pointer past the end of the memory must not be created
			src = unsafe.Add(src, 2*stride)
		}
	}
	for ; i < n; i++ {
		d[i] = *(*T)(src)
		if i+1 < n {
			src = unsafe.Add(src, stride)
		}
	}
}

// spread copies n contiguous elements of the given size to places that are stride bytes apart.
func spread(dst, src unsafe.Pointer, size, stride, n int) {
	switch {
	case stride == size:
		copy(at[byte](dst, n*size), at[byte](src, n*size))
	case size == 1:
		spreadAs[uint8](dst, src, stride, n)
	case size == 2:
		spreadAs[uint16](dst, src, stride, n)
	case size == 4:
		spreadAs[uint32](dst, src, stride, n)
	default:
		spreadAs[uint64](dst, src, stride, n)
	}
}

func spreadAs[T uint8 | uint16 | uint32 | uint64](dst, src unsafe.Pointer, stride, n int) {
	for i, v := range at[T](src, n) {
		*(*T)(unsafe.Add(dst, i*stride)) = v
	}
}
