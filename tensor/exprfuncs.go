package tensor

import (
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/expr"
)

// An exprFunc is a function that the text of [Expr] may call. A declared op computes the function.
// The function has the op's rule for types and the op's gradient.
type exprFunc struct {
	op      *Elementwise
	integer *Elementwise // the op for integer operands; nil means op
	folds   bool         // true if f(a, b, c) is computed as f(f(a, b), c)
	bounds  bool         // true if the arguments after the first are limits, as in clamp
	rewrite func(n *exprNode) *exprNode
}

func (f *exprFunc) takes() int { return f.op.Arity }

// exprAliases maps torch's names of functions to the names of declared ops.
var exprAliases = map[string]string{
	"min": "minimum", "max": "maximum", "logsigmoid": "log_sigmoid", "absolute": "abs", "negative": "neg", "arcsin": "asin", "arccos": "acos",
	"arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "sgn": "sign", "fix": "trunc",
	"subtract": "sub", "multiply": "mul", "divide": "div",
}

// exprWholes maps ops that an expression cannot call to the methods to call instead. These ops work
// on many elements together.
var exprWholes = map[string]string{
	"sum": "Sum", "mean": "Mean", "prod": "Prod", "var": "Var", "std": "Std", "norm": "Norm", "all": "All", "any": "Any",
	"amax": "Amax", "amin": "Amin", "argmax": "Argmax", "argmin": "Argmin", "median": "Median", "logsumexp": "LogSumExp",
	"softmax": "Softmax", "log_softmax": "LogSoftmax", "cumsum": "CumSum", "normalize": "Normalize",
	"matmul": "MatMul", "mm": "MatMul", "dot": "Dot",
}

// These ops are for expressions only. The methods Clamp and Softplus take run-time scalars. In an
// expression the bounds of clamp are operands.
var (
	exprClampOp = &Elementwise{
		Name: "clamp", Arity: 3, Expr: limit(x0, x1, x2), Ref: func(x, _ []float64) float64 { return clamp(x[0], x[1], x[2]) },
		Grad: []*expr.Expr{x0.Gt(x1).And(x0.Lt(x2)).Select(expr.X(3), zeroC), nil, nil},
	}
	// beta 1 and threshold 20 are torch's defaults
	exprSoftplusOp = &Elementwise{
		Name: "softplus", Arity: 1, Result: FixedFloat, Autocast: AutocastHigh, Ref: ref1(softplus),
		Expr: x0.Gt(expr.C(20)).Select(x0, x0.Softplus()),
		Grad: []*expr.Expr{x0.Gt(expr.C(20)).Select(x1, x1.Mul(x0.Sigmoid()))},
	}
	exprSquareOp = &Elementwise{
		Name: "pow_square", Arity: 1, Result: Floating, Autocast: AutocastHigh, Expr: x0.Mul(x0), Ref: ref1(squared),
		Grad: []*expr.Expr{x1.Scale(2).Mul(x0)},
	}
)

// exprPowers are ops for some exponents. They are faster than the general power, and exact where
// the general power is not, as in [Tensor.PowScalar].
var exprPowers = map[float64]*exprFunc{
	2: {op: exprSquareOp}, 3: {op: powCubeOp}, 0.5: {op: sqrtOp}, -0.5: {op: powRsqrtOp}, -1: {op: reciprocalOp},
}

func rewritePower(n *exprNode) *exprNode {
	if by := n.args[1]; by.fn == nil && by.name == "" {
		if f := exprPowers[by.value]; f != nil {
			return &exprNode{at: n.at, name: n.name, fn: f, args: n.args[:1]}
		}
	}
	return n
}

// exprFuncOf returns the function with this name, or nil. It finds every op that was declared
// without run-time scalars, including ops that the program declared.
func exprFuncOf(name string) *exprFunc {
	switch name {
	case "clamp", "clip":
		return &exprFunc{op: exprClampOp, bounds: true}
	case "softplus":
		return &exprFunc{op: exprSoftplusOp}
	}
	if other := exprAliases[name]; other != "" {
		name = other
	}
	f := &exprFunc{folds: name == "minimum" || name == "maximum"}
	if name == "pow" {
		f.rewrite = rewritePower
	}
	for _, e := range Declared() {
		switch {
		case !callable(e):
		case e.Name == name && f.op == nil:
			f.op = e
		case e.Name == name+"_integer" && f.integer == nil:
			f.integer = e
		}
	}
	if f.op == nil || strings.HasSuffix(name, "_integer") {
		return nil
	}
	return f
}

func callable(e *Elementwise) bool { return len(e.Params) == 0 && e.form == "" && e.Arity <= 3 }

func exprFuncNames() []string {
	names := []string{"clamp", "clip", "softplus"}
	for name := range exprAliases {
		names = append(names, name)
	}
	for _, e := range Declared() {
		if callable(e) && !strings.HasSuffix(e.Name, "_integer") {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	return names
}
