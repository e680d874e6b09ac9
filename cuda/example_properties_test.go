package cuda_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// DeviceProperties returns the properties of a GPU, like torch.cuda.get_device_name,
// get_device_capability and get_device_properties.
func ExampleDeviceProperties() {
	gpu := emulate("64MiB")
	major, minor := cuda.DeviceCapability(gpu)
	fmt.Printf("%s, compute capability %d.%d\n", cuda.DeviceName(gpu), major, minor)
	p, err := cuda.DeviceProperties(gpu)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.Multiprocessors, "multiprocessors of", p.MaxThreadsPerSM, "threads,", p.SharedMemoryPerBlockMax>>10, "KiB of shared memory for a block")
	fmt.Println(p.TotalMemory>>20, "MiB at", p.PCIBusID, p.ComputeMode)
	fmt.Printf("%.0f GB/s\n", p.MemoryBandwidth()/1e9)
	fmt.Println(cuda.IsBF16Supported(gpu), cuda.IsTF32Supported(gpu), cuda.ArchList())
	// Output:
	// Emulated GPU (sm_90), compute capability 9.0
	// 4 multiprocessors of 2048 threads, 227 KiB of shared memory for a block
	// 64 MiB at 0000:01:00.0 Default
	// 1280 GB/s
	// true true [compute_80]
}

// The device of a scope replaces torch's current device (torch.cuda.device and
// torch.cuda.current_device).
func Example_currentDevice() {
	gpus, err := cuda.Emulate("emulate:2,mem=16MiB")
	if err != nil {
		log.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) { // tensor.On(cuda.Get(1)) on a machine with two GPUs
		fmt.Println(s.Device().Name(), s.Ones(2))
	}, tensor.On(gpus[1]))
	fmt.Println(gpus[1].Index())
	// Output:
	// cuda:1 tensor([1., 1.], device='cuda:1')
	// 1
}

// Copies between GPUs are direct if the hardware supports it; PeerCopies says how they were done.
func ExamplePeerCopies() {
	// with peer=off, the GPUs would have no peer access
	gpus, err := cuda.Emulate("emulate:2,mem=16MiB")
	if err != nil {
		log.Fatal(err)
	}
	can, err := cuda.CanDeviceAccessPeer(gpus[1], gpus[0])
	fmt.Println(can, err)
	x := tensor.From([]float32{1, 2, 3}).To(gpus[0])
	fmt.Println(x.To(gpus[1]))
	traffic, err := cuda.PeerCopies(gpus[1], gpus[0])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d copy of %d bytes, direct: %v\n", traffic.Copies, traffic.Bytes, traffic.Direct)
	// Output:
	// true <nil>
	// tensor([1., 2., 3.], device='cuda:1')
	// 1 copy of 12 bytes, direct: true
}

// DisablePeerAccess makes copies between two GPUs pass through the host. A program needs it on
// machines whose PCI switches or IOMMU corrupt direct copies.
func ExampleDisablePeerAccess() {
	gpus, err := cuda.Emulate("emulate:2,mem=16MiB")
	if err != nil {
		log.Fatal(err)
	}
	if err := cuda.DisablePeerAccess(gpus[1], gpus[0]); err != nil {
		log.Fatal(err)
	}
	fmt.Println(tensor.From([]float32{1, 2, 3}).To(gpus[0]).To(gpus[1]))
	traffic, err := cuda.PeerCopies(gpus[1], gpus[0])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d copy of %d bytes, direct: %v (%s)\n", traffic.Copies, traffic.Bytes, traffic.Direct, traffic.Reason)
	if err := cuda.EnablePeerAccess(gpus[1], gpus[0]); err != nil {
		log.Fatal(err)
	}
	// Output:
	// tensor([1., 2., 3.], device='cuda:1')
	// 1 copy of 12 bytes, direct: false (DisablePeerAccess was called)
}

// If a GPU cannot be used, Open returns an error that says why. Get panics with the same error, so
// it has a single result and can be an argument of a call. tensor.Try returns the error.
func ExampleOpen() {
	gpu, err := cuda.Open(99)
	var u *device.UnavailableError
	fmt.Println(gpu == nil, errors.As(err, &u), u.Name)
	err = tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) { s.Ones(2) }, tensor.On(cuda.Get(99)))
	})
	fmt.Println(errors.As(err, &u))
	// Output:
	// true true cuda:99
	// true
}
