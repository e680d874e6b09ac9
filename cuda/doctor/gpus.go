package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/lib/nvml"
)

// driver examines the GPUs of a driver that works.
func (x *examination) driver(api cu.API) {
	if v, err := api.DriverVersion(); err == nil {
		x.CUDA = v.String()
	}
	m, err := x.m.Monitor()
	if err != nil {
		m = nil
		x.find("no-nvml", Note, err.Error()+": temperatures, clocks, errors and processes cannot be looked at", "install the whole of the driver; in a container NVIDIA_DRIVER_CAPABILITIES must contain utility")
	} else if v, err := m.DriverVersion(); err == nil {
		x.Driver = v
	}
	n, err := api.DeviceCount()
	if err != nil {
		x.find("driver-failed", Unused, err.Error(), "nvidia-smi and the kernel's log (dmesg) usually say more")
		return
	}
	usable := 0
	for i := range n {
		g, ok := x.device(api, i)
		if !ok {
			continue
		}
		if g.Usable {
			usable++
			x.spills(g)
		}
		if m != nil {
			x.monitor(m, &g)
		}
		x.GPUs = append(x.GPUs, g)
	}
	if usable > 0 { // problems of some GPUs do not prevent a program from using the others
		for i := range x.Findings {
			if f := &x.Findings[i]; slices.Contains([]string{"gpu-too-old", "gpu-prohibited", "gpu-failed"}, f.ID) {
				f.Level = Slow
			}
		}
	}
	x.hidden(m, n)
	if x.system.wsl {
		x.find("wsl", Note, "this is WSL: copies are slower than in Linux itself, page-locked memory is scarce, and not all sensors and processes are shown", "")
		for _, at := range x.m.Glob("/usr/lib/*/libcuda.so.[0-9]*") {
			if !strings.HasPrefix(x.m.Target(at), "/usr/lib/wsl/") {
				x.find("wsl-driver", Slow, at+": a driver for Linux is installed in WSL, beside the one of Windows in /usr/lib/wsl/lib",
					"remove it: WSL takes the driver of Windows (apt remove 'libnvidia-compute-*')")
				break
			}
		}
	}
}

// hidden reports GPUs that the management library counts, but the driver does not show.
func (x *examination) hidden(m nvml.API, shown int) {
	v, set := x.m.Env("CUDA_VISIBLE_DEVICES")
	if m == nil || !set {
		return
	}
	if all, err := m.DeviceCount(); err == nil && all > shown {
		x.find("hidden-some", Note, fmt.Sprintf("CUDA_VISIBLE_DEVICES=%s shows %d of %d GPUs", v, shown, all), "unset it to use all of them")
	}
}

// device describes GPU i as the driver reports it.
func (x *examination) device(api cu.API, i int) (g GPU, ok bool) {
	g.Name = fmt.Sprintf("cuda:%d", i)
	d, err := api.DeviceGet(i)
	var mode, timeout int
	if err == nil {
		g.Product, err = api.DeviceName(d)
	}
	if err == nil {
		g.Memory, err = api.DeviceTotalMem(d)
	}
	if err == nil {
		g.PCIBusID, err = api.DevicePCIBusID(d)
	}
	var capability [2]int
	for a, to := range map[cu.DeviceAttr]*int{cu.AttrComputeCapabilityMajor: &capability[0], cu.AttrComputeCapabilityMinor: &capability[1],
		cu.AttrComputeMode: &mode, cu.AttrKernelExecTimeout: &timeout} {
		if err == nil {
			*to, err = api.DeviceAttribute(d, a)
		}
	}
	if err != nil {
		x.add(Finding{ID: "gpu-failed", Level: Unused, GPU: g.Name, Seen: err.Error(), Do: "nvidia-smi and the kernel's log (dmesg) usually say more"})
		return g, false
	}
	g.Capability = fmt.Sprintf("%d.%d", capability[0], capability[1])
	g.Usable = capability[0] >= 8
	switch {
	case !g.Usable:
		x.add(Finding{ID: "gpu-too-old", Level: Unused, GPU: g.Name, Seen: fmt.Sprintf("%s has compute capability %s, 8.0 is needed", g.Product, g.Capability),
			Do: "use a GPU of the Ampere generation or newer"})
	case mode == int(cuda.ComputeProhibited):
		g.Usable = false
		x.add(Finding{ID: "gpu-prohibited", Level: Unused, GPU: g.Name, Seen: "its compute mode is Prohibited", Do: fmt.Sprintf("nvidia-smi -i %s -c 0, as root", g.PCIBusID)})
	case mode == int(cuda.ComputeExclusiveProcess):
		x.add(Finding{ID: "gpu-exclusive", Level: Note, GPU: g.Name, Seen: "its compute mode is Exclusive_Process: only one process at a time can use it",
			Do: fmt.Sprintf("nvidia-smi -i %s -c 0, as root, if several are to", g.PCIBusID)})
	}
	if timeout != 0 {
		x.add(Finding{ID: "display", Level: Note, GPU: g.Name, Seen: "a display hangs on it: kernels that run for seconds are ended, and the desktop takes a part of memory and time",
			Do: "use another GPU for computing, if there is one"})
	}
	return g, true
}

// spills reports kernels for which the compiler had too few registers in an earlier process. It
// skips records of other compute capabilities than g's, and of drivers of other CUDA versions.
func (x *examination) spills(g GPU) {
	var names []string
	for _, s := range x.m.Spills() {
		if s.Capability == g.Capability && s.Driver == x.CUDA {
			names = append(names, fmt.Sprintf("%s (%d bytes a thread)", s.Kernel, s.Bytes))
		}
	}
	const most = 5
	if n := len(names) - most; n > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", n))
	}
	if len(names) > 0 {
		x.add(Finding{ID: "spills", Level: Slow, GPU: g.Name, Seen: "the driver's compiler had not enough registers for kernels of the library: " + strings.Join(names, ", "),
			Do: "another version of the driver may compile them better; results are right all the same"})
	}
}

// monitor reads the sensors of a GPU. It skips those that the GPU does not have.
func (x *examination) monitor(m nvml.API, g *GPU) {
	add := func(id string, l Level, seen, do string) {
		x.add(Finding{ID: id, Level: l, GPU: g.Name, Seen: seen, Do: do})
	}
	h, err := m.DeviceByPCIBusID(g.PCIBusID)
	switch {
	case errors.Is(err, nvml.ErrGPULost), errors.Is(err, nvml.ErrResetRequired):
		add("gpu-lost", Slow, err.Error(), "restart the machine, or reset the GPU (nvidia-smi --gpu-reset) when nobody uses it; if it happens again look at power, seating and heat")
		return
	case err != nil:
		add("no-sensors", Note, "the management library does not tell of it: "+err.Error(), "")
		return
	}
	g.sensed = true
	if v, err := m.Temperature(h); err == nil {
		g.Temperature = v
	}
	if now, limit, err := m.Power(h); err == nil {
		g.Power, g.PowerLimit = now, limit
	}
	if now, most, err := m.Clock(h, nvml.ClockSM); err == nil {
		g.Clock, g.MaxClock = now, most
	}
	if v, _, err := m.Utilization(h); err == nil {
		g.Utilization = v
	}
	x.throttle(m, h, g, add)
	x.link(m, h, g, add)
	x.memory(m, h, g, add)
	x.errors(m, h, add)
	if on, err := m.Persistence(h); err == nil && !on && x.system.linux && !x.system.wsl {
		add("persistence-off", Slow, "persistence mode is off: the driver initialises the GPU anew, which takes seconds, whenever nobody used it before",
			"start nvidia-persistenced, or nvidia-smi -pm 1, as root")
	}
	if on, pending, err := m.MIG(h); err == nil && on {
		add("mig", Note, "it is in MIG mode: a process has one instance, a part of the multiprocessors and of the memory", "leave the mode (nvidia-smi -mig 0, as root) to use all of it")
	} else if err == nil && pending {
		add("mig", Note, "it will be in MIG mode after the next reset", "")
	}
}

type adder func(id string, l Level, seen, do string)

// throttle explains why the clock rates are low.
func (x *examination) throttle(m nvml.API, h nvml.Device, g *GPU, add adder) {
	t, err := m.Throttle(h)
	if err != nil {
		return
	}
	g.idle = t&nvml.ThrottleIdle != 0
	clocks := ""
	if g.MaxClock > 0 {
		clocks = fmt.Sprintf(", %d MHz of %d MHz", g.Clock, g.MaxClock)
	}
	if r := t & (nvml.ThrottleThermal | nvml.ThrottleHardwareHot); r != 0 {
		add("throttle-thermal", Slow, fmt.Sprintf("it is too hot and slows itself down (%v; %d °C%s)", r, g.Temperature, clocks),
			"see to cool air, clean fans and filters, and the distance between cards; lower the power limit (nvidia-smi -pl) until then")
	}
	if r := t & (nvml.ThrottlePowerBrake); r != 0 {
		add("throttle-power", Slow, fmt.Sprintf("the machine's power supply slows it down (%v%s)", r, clocks), "look at the power supply and its cables: all connectors, of their own")
	}
	if t&nvml.ThrottlePowerCap != 0 {
		limit := ""
		if g.PowerLimit > 0 {
			limit = fmt.Sprintf(" of %.0f W", float64(g.PowerLimit)/1e3)
		}
		add("throttle-power", Slow, "it works at its power limit"+limit+clocks, "usual under full load; a higher limit, where the card and the cooling allow it: nvidia-smi -pl, as root")
	}
	if t&nvml.ThrottleHardware != 0 && t&(nvml.ThrottleHardwareHot|nvml.ThrottlePowerBrake) == 0 {
		add("throttle-hardware", Slow, "the hardware halves its clocks, or worse"+clocks, "look at temperature, power supply and cables: nvidia-smi -q -d PERFORMANCE")
	}
	if t&nvml.ThrottleSetting != 0 {
		add("clocks-set", Slow, "its clocks are held down by a setting"+clocks, "nvidia-smi -rac and nvidia-smi -rgc, as root, lift it")
	}
}

// link compares the PCI link with the best link that GPU and slot support.
func (x *examination) link(m nvml.API, h nvml.Device, g *GPU, add adder) {
	l, err := m.Link(h)
	if err != nil {
		return
	}
	g.Link = fmt.Sprintf("generation %d of %d, width %d of %d", l.Generation, l.MaxGeneration, l.Width, l.MaxWidth)
	if l.Width < l.MaxWidth {
		add("pcie-width", Slow, fmt.Sprintf("its PCIe link has %d of %d lanes: copies from and to the host are that much slower", l.Width, l.MaxWidth),
			"put the card into a slot with all lanes (the board's manual tells which share theirs), and see that it is seated well; risers and splitters cost lanes")
	}
	if l.Generation < l.MaxGeneration {
		level, seen, do := Slow, fmt.Sprintf("its PCIe link runs at generation %d of %d", l.Generation, l.MaxGeneration), "look at the slot's setting in the BIOS, and at risers and cables"
		if g.idle {
			level, seen, do = Note, seen+"; idle GPUs save power so, and go up under load", ""
		}
		add("pcie-generation", level, seen, do)
	}
}

// memory reports other processes that use the GPU's memory.
func (x *examination) memory(m nvml.API, h nvml.Device, g *GPU, add adder) {
	mem, err := m.Memory(h)
	if err != nil {
		return
	}
	g.UsedMemory = mem.Used
	var list []string
	others := 0
	if processes, err := m.Processes(h); err == nil {
		for _, p := range processes {
			if int(p.PID) == x.m.Process() {
				continue
			}
			others++
			if p.UsedMemory == nvml.NoValue {
				list = append(list, fmt.Sprintf("process %d", p.PID))
			} else {
				list = append(list, fmt.Sprintf("process %d has %.1f GiB", p.PID, float64(p.UsedMemory)/(1<<30)))
			}
		}
	}
	const most = 5
	if len(list) > most {
		list = append(list[:most], fmt.Sprintf("%d more", len(list)-most))
	}
	used := fmt.Sprintf("%.1f of %.1f GiB of its memory are in use", float64(mem.Used)/(1<<30), float64(mem.Total)/(1<<30))
	switch {
	case others > 0:
		add("shared", Slow, fmt.Sprintf("others use it: %s; %s, and it is %d %% busy", strings.Join(list, ", "), used, g.Utilization), "wait for them, end them, or use another GPU (CUDA_VISIBLE_DEVICES)")
	case mem.Total > 0 && mem.Used > mem.Total/10:
		add("memory-used", Slow, used+", by processes that are not shown: of other containers, of the desktop, or ended without cleaning up",
			"nvidia-smi on the host shows them; fuser -v /dev/nvidia* finds those that hang")
	}
}

// errors reports memory errors.
func (x *examination) errors(m nvml.API, h nvml.Device, add adder) {
	if corrected, uncorrected, err := m.ECCErrors(h, false); err == nil && uncorrected > 0 {
		add("ecc-errors", Slow, fmt.Sprintf("%d errors of its memory could not be corrected since the driver was loaded, %d were", uncorrected, corrected),
			"restart the machine; if they come again have the card replaced")
	} else if err == nil && corrected > 1000 {
		add("ecc-corrected", Note, fmt.Sprintf("%d errors of its memory were corrected since the driver was loaded", corrected), "keep an eye on it: nvidia-smi -q -d ECC")
	}
	r, err := m.RemappedRows(h)
	if err != nil {
		return
	}
	if r.Failure {
		add("memory-failing", Slow, "rows of its memory fail, and no spare ones are left", "have the card replaced")
	} else if r.Pending {
		add("memory-pending", Slow, "rows of its memory fail and are replaced at the next reset", "reset it when nobody uses it (nvidia-smi --gpu-reset), or restart the machine")
	}
}
