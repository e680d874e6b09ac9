package profile

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// A Transfer sums up events that one line of a program caused: copies between the host and a GPU,
// copies between GPUs, or waits.
type Transfer struct {
	// line of the program that caused the events, such as "train/main.go:31"; "" if no frame of the
	// program is known
	Site string
	// op of the library, such as "item" or "to"; outside of ops, the function that the program
	// called, such as "optim.ClipGradNorm"
	Op string
	// "HtoD", "DtoH", "PtoP", or "PtoP staged" for a copy through the host's memory; for a wait,
	// "stream synchronize", "device synchronize", "event wait" or "wait for memory"
	What    string
	Device  string
	Count   int
	Bytes   int
	Pinned  bool // the host's memory was page-locked
	Blocked bool // the host waited for the copy to finish
	// whether the driver copied data of its own, such as a table that a primitive needs
	Own bool
	// host time in the calls, including the wait of a call that blocks
	Host time.Duration
	// time on the device; for a blocking copy it includes the return to the host
	GPU time.Duration
}

// Transfers lists the copies between the host and GPUs, the copies between GPUs, and the waits of
// the host. Transfers for which the host waited precede the others. Within each of these two
// groups, the most expensive transfers come first.
type Transfers struct {
	Rows  []Transfer
	notes []string
}

// staged is added to the name of a copy between GPUs that goes through the host's memory.
const staged = " staged"

// Transfers returns the copies between the host and GPUs, the copies between GPUs, and the waits of
// the host, summed up by the line of the program that caused them. It leaves out copies within a
// device, which count as kernels, and waits of the profile itself.
func (p *Profile) Transfers() *Transfers {
	r := p.record()
	t := &Transfers{notes: r.notes()}
	type key struct {
		site, op, what, device string
		pinned, blocked, own   bool
	}
	at := map[key]int{}
	row := func(k key) *Transfer {
		i, ok := at[k]
		if !ok {
			i = len(t.Rows)
			at[k] = i
			t.Rows = append(t.Rows, Transfer{Site: k.site, Op: k.op, What: k.what, Device: k.device, Pinned: k.pinned, Blocked: k.blocked, Own: k.own})
		}
		t.Rows[i].Count++
		return &t.Rows[i]
	}
	for _, c := range r.copies {
		if c.Kind == device.DeviceToDevice {
			continue
		}
		site, what := origin(c.in, c.stack)
		if c.Own {
			what += " (" + c.Op + ")"
		}
		kind := c.Kind.String()
		if c.Staged {
			kind += staged
		}
		v := row(key{site, what, kind, c.Device.Name(), c.Pinned, c.Blocked, c.Own})
		v.Bytes += c.Bytes
		v.Host += c.End - c.Start
		if c.run.ok {
			v.GPU += c.run.end - c.run.start
		}
	}
	for _, w := range r.waits {
		site, op := origin(w.in, w.stack)
		v := row(key{site: site, op: op, what: w.Call, device: w.Device.Name(), blocked: true})
		v.Host += w.End - w.Start
	}
	sort.SliceStable(t.Rows, func(i, j int) bool {
		a, b := &t.Rows[i], &t.Rows[j]
		if a.Blocked != b.Blocked {
			return a.Blocked
		}
		return max(a.Host, a.GPU) > max(b.Host, b.GPU)
	})
	return t
}

// origin returns the line of the program, and the op, that caused an event in span p with stack s.
// If the goroutine of the span worked for another goroutine, the line comes from the callers of the
// span.
func origin(p *span, s *stack) (site, op string) {
	site, op = s.site(), s.entry()
	if p != nil && p.kind != device.SpanScope && p.kind != device.SpanUser {
		op = p.name
	}
	for ; p != nil && site == ""; p = p.parent {
		if p.callers != nil {
			site = p.callers.site()
		}
	}
	return site, op
}

// hint returns a line of advice on a transfer.
func (t *Transfer) hint() string {
	switch {
	case t.Op == "item":
		return "Item waits for all that is queued: add losses up on the device, and read the sum every so many steps"
	case t.What == "DtoH" && t.Blocked:
		return "a copy to the host waits for all that is queued: read less often, or x.To(cpu, tensor.NonBlocking()) and read it later"
	case t.Own:
		return ""
	case t.What == "HtoD" && !t.Pinned && t.Bytes/t.Count >= 4<<10:
		return "memory that is not page-locked is copied twice, while the host waits: PinMemory, or the loader's option for it, and To(dev, tensor.NonBlocking())"
	case strings.HasSuffix(t.What, staged):
		return "a staged copy goes to the host and back, as one GPU cannot address the other's memory: cuda.PeerCopies says why"
	case t.What == "HtoD" && t.Blocked && t.Pinned:
		return "the memory is page-locked: To(dev, tensor.NonBlocking()) returns at once"
	case strings.HasSuffix(t.What, "synchronize") || t.What == "event wait":
		return "ops order themselves: a wait is needed only to take the time, or before memory is given to other libraries"
	}
	return ""
}

// Table formats the transfers as a table, with a line of advice for each kind.
func (t *Transfers) Table() string {
	var b strings.Builder
	yes := func(v bool, a, b string) string {
		if v {
			return a
		}
		return b
	}
	layOut(&b, []columnOf[Transfer]{
		{title: "Call site", left: true, cell: func(t *Transfer) string { return yes(t.Site != "", t.Site, "(unknown)") }, width: 60},
		{title: "Op", left: true, cell: func(t *Transfer) string { return t.Op }, width: 30},
		{title: "What", left: true, cell: func(t *Transfer) string { return t.What }},
		{title: "Device", left: true, cell: func(t *Transfer) string { return t.Device }},
		{title: "Count", cell: func(t *Transfer) string { return fmt.Sprint(t.Count) }},
		{title: "Bytes", cell: func(t *Transfer) string { return yes(t.Bytes > 0, bytesString(t.Bytes), "--") }},
		{title: "Host memory", left: true, cell: func(t *Transfer) string {
			return yes(t.What == "HtoD" || t.What == "DtoH", yes(t.Pinned, "pinned", "pageable"), "--")
		}},
		{title: "Blocked", cell: func(t *Transfer) string { return yes(t.Blocked, timeString(t.Host), "no") }},
		{title: "GPU time", cell: func(t *Transfer) string { return yes(t.GPU > 0, timeString(t.GPU), "--") }},
	}, t.Rows)
	var blocked time.Duration
	seen := map[string]bool{}
	var hints []string
	for i := range t.Rows {
		v := &t.Rows[i]
		if v.Blocked {
			blocked += v.Host
		}
		if h := v.hint(); h != "" && !seen[h] {
			seen[h] = true
			hints = append(hints, "- "+v.What+" in "+yes(v.Op != "", v.Op, "the program")+" ("+yes(v.Site != "", v.Site, "unknown site")+"): "+h)
		}
	}
	fmt.Fprintf(&b, "Host blocked: %s\n", timeString(blocked))
	if len(hints) > 0 {
		b.WriteString(strings.Join(hints, "\n") + "\n")
	}
	b.WriteString(noteLines(t.notes))
	return b.String()
}
