package main

import (
	"fmt"
	"strings"
)

// kernel describes one block primitive. A handwritten Go function in generic.go is its reference;
// it has the kernel's name with a lower-case first letter. Assembly for AVX2 and AVX-512 may exist.
type kernel struct {
	name string   // exported name, for instance AddF32
	dst  string   // element type of dst
	src  []string // element types of the sources
	args []string // names of the sources
	loop string   // Go statement that computes element i, shown in the doc comment
	note string   // text added to the doc comment
}

// alias is an exported function that calls a kernel of another name, with reinterpreted or
// exchanged operands.
type alias struct {
	name, dst string
	src, args []string
	call      string // body of the function
	loop      string
	note      string
}

// A reduction is a kernel that combines all elements of a block into one value.
type reduction struct {
	name string
	typ  string
	args []string
	doc  string
}

var typeOf = map[string]string{"F32": "float32", "F64": "float64", "I32": "int32", "U32": "uint32", "I64": "int64", "U64": "uint64",
	"I16": "int16", "U16": "uint16", "I8": "int8", "U8": "uint8"}

var kernels, aliases, reductions = declare()

func declare() (ks []kernel, as []alias, rs []reduction) {
	var note string
	k := func(name, dst string, src []string, args string, loop string) {
		ks = append(ks, kernel{name, dst, src, strings.Fields(args), loop, note})
		note = ""
	}
	for _, s := range []string{"F32", "F64"} {
		t := typeOf[s]
		for _, o := range [][2]string{{"Add", "+"}, {"Sub", "-"}, {"Mul", "*"}, {"Div", "/"}} {
			k(o[0]+s, t, []string{t, t}, "a b", "dst[i] = a[i] "+o[1]+" b[i]")
		}
		for _, o := range []string{"Min", "Max"} {
			note = "NaN if either is NaN; -0 is less than +0."
			k(o+s, t, []string{t, t}, "a b", "dst[i] = "+strings.ToLower(o)+"(a[i], b[i])")
		}
		note = "The sum is rounded once."
		k("FMA"+s, t, []string{t, t, t}, "a b c", "dst[i] = fma(a[i], b[i], c[i])")
		note = "Only the sign bit changes, also of NaN."
		k("Neg"+s, t, []string{t}, "a", "dst[i] = -a[i]")
		note = "Only the sign bit changes, also of NaN."
		k("Abs"+s, t, []string{t}, "a", "dst[i] = abs(a[i])")
		note = "The root is correctly rounded."
		k("Sqrt"+s, t, []string{t}, "a", "dst[i] = sqrt(a[i])")
		for _, o := range []string{"Floor", "Ceil", "Trunc", "RoundEven"} {
			k(o+s, t, []string{t}, "a", "dst[i] = "+strings.ToLower(o[:1])+o[1:]+"(a[i])")
		}
	}
	for _, w := range []string{"32", "64"} {
		u, i := "uint"+w, "int"+w
		for _, o := range [][2]string{{"Add", "+"}, {"Sub", "-"}, {"Mul", "*"}, {"And", "&"}, {"Or", "|"}, {"Xor", "^"}} {
			k(o[0]+"U"+w, u, []string{u, u}, "a b", "dst[i] = a[i] "+o[1]+" b[i]")
			as = append(as, reinterpret(o[0], w, "a b", "dst[i] = a[i] "+o[1]+" b[i]", "U"))
		}
		note = "Zero for counts of " + w + " and above."
		k("ShlU"+w, u, []string{u, u}, "a b", "dst[i] = a[i] << b[i]")
		al := reinterpret("Shl", w, "a b", "dst[i] = a[i] << uint"+w+"(b[i])", "U")
		al.note = "Zero for counts of " + w + " and above (negative ones are large)."
		as = append(as, al)
		note = "Zero for counts of " + w + " and above."
		k("ShrU"+w, u, []string{u, u}, "a b", "dst[i] = a[i] >> b[i]")
		note = "The sign fills up; counts of " + w + " and above (negative ones are large) leave only it."
		k("ShrI"+w, i, []string{i, i}, "a b", "dst[i] = a[i] >> uint"+w+"(b[i])")
		note = "The upper half of the double-width product."
		k("MulHiU"+w, u, []string{u, u}, "a b", "dst[i] = hi(a[i] * b[i])")
		for _, p := range []string{"I", "U"} {
			t := typeOf[p+w]
			k("Min"+p+w, t, []string{t, t}, "a b", "dst[i] = min(a[i], b[i])")
			k("Max"+p+w, t, []string{t, t}, "a b", "dst[i] = max(a[i], b[i])")
		}
		k("NegU"+w, u, []string{u}, "a", "dst[i] = -a[i]")
		as = append(as, reinterpret("Neg", w, "a", "dst[i] = -a[i]", "U"))
		k("NotU"+w, u, []string{u}, "a", "dst[i] = ^a[i]")
		as = append(as, reinterpret("Not", w, "a", "dst[i] = ^a[i]", "U"))
		note = "The least integer is its own absolute value."
		k("AbsI"+w, i, []string{i}, "a", "dst[i] = abs(a[i])")
	}
	for _, s := range []string{"F32", "F64", "I32", "U32", "I64", "U64"} {
		t := typeOf[s]
		for _, o := range [][2]string{{"Eq", "=="}, {"Ne", "!="}, {"Lt", "<"}, {"Le", "<="}} {
			loop := "dst[i] = bit(a[i] " + o[1] + " b[i])"
			if s[0] == 'I' && (o[0] == "Eq" || o[0] == "Ne") {
				u := "U" + s[1:]
				as = append(as, alias{o[0] + s, "uint32", []string{t, t}, []string{"a", "b"},
					fmt.Sprintf("%s%s(dst, As%s(a), As%s(b))", o[0], u, u, u), loop, ""})
				continue
			}
			k(o[0]+s, "uint32", []string{t, t}, "a b", loop)
		}
		as = append(as, alias{"Gt" + s, "uint32", []string{t, t}, []string{"a", "b"}, "Lt" + s + "(dst, b, a)", "dst[i] = bit(a[i] > b[i])", ""})
		as = append(as, alias{"Ge" + s, "uint32", []string{t, t}, []string{"a", "b"}, "Le" + s + "(dst, b, a)", "dst[i] = bit(a[i] >= b[i])", ""})
	}
	for _, w := range []string{"32", "64"} {
		u := "uint" + w
		note = "Any m[i] other than 0 selects a[i]."
		k("SelectU"+w, u, []string{"uint32", u, u}, "m a b", "dst[i] = a[i] if m[i] != 0, else b[i]")
		for _, p := range []string{"F", "I"} {
			t := typeOf[p+w]
			as = append(as, alias{"Select" + p + w, t, []string{"uint32", t, t}, []string{"m", "a", "b"},
				fmt.Sprintf("SelectU%s(AsU%s(dst), m, AsU%s(a), AsU%s(b))", w, w, w, w), "dst[i] = a[i] if m[i] != 0, else b[i]", "Any m[i] other than 0 selects a[i]."})
		}
	}
	for _, c := range []struct{ from, to, what, note string }{
		{"F32", "F64", "float64(a[i])", ""},
		{"F64", "F32", "float32(a[i])", "Rounded to nearest even."},
		{"I32", "F32", "float32(a[i])", "Rounded to nearest even."},
		{"U32", "F32", "float32(a[i])", "Rounded to nearest even."},
		{"I64", "F32", "float32(a[i])", "Rounded once, to nearest even."},
		{"U64", "F32", "float32(a[i])", "Rounded once, to nearest even."},
		{"I32", "F64", "float64(a[i])", ""},
		{"U32", "F64", "float64(a[i])", ""},
		{"I64", "F64", "float64(a[i])", "Rounded to nearest even."},
		{"U64", "F64", "float64(a[i])", "Rounded to nearest even."},
		{"F32", "I32", "int32(a[i])", "Towards zero, saturating; NaN becomes 0."},
		{"F32", "U32", "uint32(a[i])", "Towards zero, saturating; NaN becomes 0."},
		{"F32", "I64", "int64(a[i])", "Towards zero, saturating; NaN becomes 0."},
		{"F64", "I32", "int32(a[i])", "Towards zero, saturating; NaN becomes 0."},
		{"F64", "U32", "uint32(a[i])", "Towards zero, saturating; NaN becomes 0."},
		{"F64", "I64", "int64(a[i])", "Towards zero, saturating; NaN becomes 0."},
		{"F64", "U64", "uint64(a[i])", "Towards zero, saturating; NaN becomes 0."},
		{"I32", "I64", "int64(a[i])", ""},
		{"U32", "U64", "uint64(a[i])", ""},
		{"U64", "U32", "uint32(a[i])", "Wraps; int64 to int32 is the same on reinterpreted blocks."},
		{"U8", "U32", "uint32(a[i])", "A stored bool becomes a mask."},
		{"I8", "I32", "int32(a[i])", ""},
		{"I16", "I32", "int32(a[i])", ""},
		{"U32", "U8", "uint8(a[i])", "Wraps; a mask becomes a stored bool."},
		{"U32", "U16", "uint16(a[i])", "Wraps."},
		{"U8", "F32", "float32(a[i])", ""},
		{"F16", "F32", "the value of binary16 a[i]", "NaN stays NaN, quiet."},
		{"F32", "F16", "binary16(a[i])", "Rounded to nearest even; beyond the range is ±Inf; NaN stays NaN, quiet."},
		{"BF16", "F32", "the value of bfloat16 a[i]", "Bits are moved, so NaN is kept as it is."},
		{"F32", "BF16", "bfloat16(a[i])", "Rounded to nearest even; NaN stays NaN, quiet."},
	} {
		el := func(s string) string {
			if s == "F16" || s == "BF16" {
				return "uint16"
			}
			return typeOf[s]
		}
		note = c.note
		k("Cvt"+c.from+"To"+c.to, el(c.to), []string{el(c.from)}, "a", "dst[i] = "+c.what)
	}
	for _, s := range []string{"F32", "F64"} {
		t := typeOf[s]
		rs = append(rs,
			reduction{"Sum" + s, t, []string{"a"}, "returns the sum of a in the fixed order that the package comment gives; 0 for an empty block."},
			reduction{"Dot" + s, t, []string{"a", "b"}, "returns the sum of a[i]·b[i], each product added by a fused multiply-add, in the fixed order\n// that the package comment gives; 0 for empty blocks."},
			reduction{"ReduceMin" + s, t, []string{"a"}, "returns the least element of a: NaN if there is one, -0 below +0, +Inf for an empty block."},
			reduction{"ReduceMax" + s, t, []string{"a"}, "returns the greatest element of a: NaN if there is one, +0 above -0, -Inf for an empty block."})
	}
	return
}

// reinterpret returns the alias for signed integers of a kernel for unsigned integers. The bits of
// the kernel's result must be the same for both.
func reinterpret(op, w, args, loop, canon string) alias {
	t := "int" + w
	as := strings.Fields(args)
	var src, call []string
	for _, a := range as {
		src = append(src, t)
		call = append(call, fmt.Sprintf("As%s%s(%s)", canon, w, a))
	}
	return alias{op + "I" + w, t, src, as, fmt.Sprintf("%s%s%s(As%s%s(dst), %s)", op, canon, w, canon, w, strings.Join(call, ", ")), loop, ""}
}
