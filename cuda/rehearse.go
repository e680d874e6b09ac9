package cuda

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
)

var _ device.Rehearser = (*Device)(nil)

// mostLoaders is the largest number of kernels that are compiled at once.
const mostLoaders = 16

// Rehearsal returns an emulated GPU without memory. Its kernels are planned for d's capability,
// product and driver, so work uses the same kernels as on d.
func (d *Device) Rehearsal() (device.Device, error) {
	r, err := openMeta(emu.Config{Memory: emu.MaxMemory, SM: emu.Nearest(d.sm), Meta: true})
	if err != nil {
		return nil, explain(err)
	}
	r.p.print, r.p.folder = nil, "" // d prints its kernels when it loads them, so r does not
	r.sm, r.ptx, r.gpu, r.rehearses = d.sm, d.ptx, d.gpu, d
	info := d.info
	info.Emulated, info.Meta, info.Memory = true, true, r.info.Memory
	r.info = info
	return r, nil
}

// Load loads the kernels that work on rehearsal, a device from d.Rehearsal, has used. It loads
// several kernels at once. The error is a *[device.OperandError] if rehearsal is another device.
// Other errors are a *[device.Fault] and ctx.Err().
func (d *Device) Load(ctx context.Context, rehearsal device.Device, progress func(done, all int)) error {
	r, ok := rehearsal.(*Device)
	if !ok || r.rehearses != d {
		return d.refusal("load", "rehearsal", "it is no rehearsal of "+d.name)
	}
	list := d.lacks(r)
	return parallel(ctx, len(list), progress, func(i int) error { return d.preload(list[i]) })
}

// parallel calls f(0) to f(n-1) on several goroutines, starting them in this order. It calls
// progress after each call that returns no error. When ctx ends, it starts no more calls. If a call
// panics, parallel panics with that value.
func parallel(ctx context.Context, n int, progress func(done, all int), f func(i int) error) error {
	var (
		mu     sync.Mutex
		done   int
		raised any
		failed = make([]error, n)
		next   = make(chan int)
		all    sync.WaitGroup
	)
	tell := func() {
		mu.Lock()
		defer mu.Unlock()
		done++
		progress(done, n)
	}
	for range min(n, mostLoaders, runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			defer func() {
				if r := recover(); r != nil {
					mu.Lock()
					raised = r
					mu.Unlock()
					for range next { // drain the channel, so that the sender does not block
					}
				}
			}()
			for i := range next {
				if failed[i] = f(i); failed[i] == nil && progress != nil {
					tell()
				}
			}
		})
	}
	var stopped error
	for i := range n {
		if stopped = ctx.Err(); stopped != nil {
			break
		}
		next <- i
	}
	close(next)
	all.Wait()
	if raised != nil {
		panic(raised)
	}
	return errors.Join(append(failed, stopped)...)
}

// preload loads a kernel as d.function does, on a goroutine for which the device's context is not
// current.
func (d *Device) preload(k *kernels.Kernel) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	_, err := d.function(k)
	return err
}

// lacks lists the kernels that r has loaded and d has not. Kernels with long texts come first,
// because they take longest to compile. If a long text came last, one goroutine would still compile
// it while all others are idle.
func (d *Device) lacks(r *Device) (list []*kernels.Kernel) {
	for k := range r.kernels.Range {
		if v, ok := d.kernels.Load(k); ok {
			l := v.(*loaded)
			l.mu.Lock()
			have := l.done
			l.mu.Unlock()
			if have {
				continue
			}
		}
		list = append(list, k.(*kernels.Kernel))
	}
	slices.SortFunc(list, func(a, b *kernels.Kernel) int {
		return cmp.Or(cmp.Compare(len(b.PTX), len(a.PTX)), cmp.Compare(a.Name, b.Name))
	})
	return list
}
