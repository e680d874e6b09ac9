package tensor

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/flambeau-go/flambeau/internal/didyoumean"
)

// The limits of an expression of [Expr]: the length of its text in bytes, its depth of nesting, its
// number of operations, and its number of tensors. A kernel accepts at most maxExprOperands
// tensors.
const (
	maxExprText     = 4096
	maxExprDepth    = 100
	maxExprNodes    = 400
	maxExprOperands = 12
)

// An exprNode is a node of the syntax tree: a number in the text, an operand, or a function of
// nodes.
type exprNode struct {
	at    int     // offset in the text
	name  string  // name of an operand, or of a function as the text writes it; "" for a number
	value float64 // value of a number
	kind  numberKind
	fn    *exprFunc // the function; nil for a number and an operand
	args  []*exprNode
}

// numberKind orders numbers as promotion does: a number of a higher kind raises the type of a
// tensor.
type numberKind uint8

const (
	kindBool numberKind = iota
	kindInt
	kindFloat
)

type exprText struct {
	root  *exprNode
	names []string       // names of the operands, in the order of the text
	first map[string]int // offset of each name's first occurrence
}

// An exprProblem says what is wrong in a text, and where.
type exprProblem struct {
	at   int // offset in the text, -1 if the problem has no position
	msg  string
	hint string
	kind error
}

func (p *exprProblem) Error() string { return p.msg }

// show returns the message with line and column, and the line of the text with a mark under it.
func (p *exprProblem) show(text string) string {
	if p.at < 0 {
		return fmt.Sprintf("%s\n    %s", p.msg, text)
	}
	at := min(p.at, len(text))
	start := strings.LastIndexByte(text[:at], '\n') + 1
	line := text[start:]
	if end := strings.IndexByte(line, '\n'); end >= 0 {
		line = line[:end]
	}
	column := utf8.RuneCountInString(text[start:at]) + 1
	where := fmt.Sprintf("column %d", column)
	if n := strings.Count(text, "\n"); n > 0 {
		where = fmt.Sprintf("line %d, column %d", strings.Count(text[:start], "\n")+1, column)
	}
	// tabs stay tabs, so that the mark is under the right column
	mark := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, text[start:at])
	return fmt.Sprintf("%s: %s\n    %s\n    %s^", where, p.msg, strings.TrimRight(line, "\r"), mark)
}

// exprConstants are the constants of an expression. An operand of the same name hides a constant.
var exprConstants = map[string]struct {
	value float64
	kind  numberKind
}{
	"pi": {math.Pi, kindFloat}, "inf": {math.Inf(1), kindFloat}, "nan": {math.NaN(), kindFloat},
	"true": {1, kindBool}, "false": {0, kindBool},
}

func parseExpr(text string) (*exprText, *exprProblem) {
	if len(text) > maxExprText {
		return nil, &exprProblem{at: maxExprText, msg: fmt.Sprintf("the expression has %d bytes, at most %d are taken", len(text), maxExprText)}
	}
	if strings.TrimSpace(text) == "" {
		return nil, &exprProblem{msg: "the expression is empty"}
	}
	files := token.NewFileSet()
	tree, err := parser.ParseExprFrom(files, "", text, parser.SkipObjectResolution)
	if err != nil {
		var list scanner.ErrorList
		if errors.As(err, &list) && len(list) > 0 {
			p := &exprProblem{at: list[0].Pos.Offset, msg: list[0].Msg}
			if rest := strings.TrimLeft(text[min(p.at, len(text)):], " "); strings.HasPrefix(rest, "=") || strings.HasPrefix(rest, ":=") {
				p.msg, p.hint = "an assignment is a statement, not an expression", "Expr returns the value; == compares"
			} else if strings.HasPrefix(p.msg, "expected") {
				p.msg = "this is not one expression: " + p.msg
			}
			return nil, p
		}
		return nil, &exprProblem{msg: err.Error()}
	}
	r := &exprReader{files: files, text: &exprText{first: map[string]int{}}}
	r.text.root, err = r.read(tree, 1)
	if err != nil {
		p := err.(*exprProblem)
		return nil, p
	}
	return r.text, nil
}

type exprReader struct {
	files *token.FileSet
	text  *exprText
	nodes int
}

func (r *exprReader) offset(p token.Pos) int { return r.files.Position(p).Offset }

func (r *exprReader) wrong(p token.Pos, hint, format string, a ...any) error {
	return &exprProblem{at: r.offset(p), msg: fmt.Sprintf(format, a...), hint: hint}
}

// exprOperators maps Go's operators to the functions that they stand for.
var exprOperators = map[token.Token]string{
	token.ADD: "add", token.SUB: "sub", token.MUL: "mul", token.QUO: "div", token.REM: "remainder",
	token.EQL: "eq", token.NEQ: "ne", token.LSS: "lt", token.LEQ: "le", token.GTR: "gt", token.GEQ: "ge",
	token.LAND: "logical_and", token.LOR: "logical_or",
	token.AND: "bitwise_and", token.OR: "bitwise_or", token.XOR: "bitwise_xor", token.SHL: "bitwise_left_shift", token.SHR: "bitwise_right_shift",
}

var exprSigns = map[token.Token]string{token.SUB: "neg", token.NOT: "logical_not", token.XOR: "bitwise_not"}

func (r *exprReader) read(e ast.Expr, depth int) (*exprNode, error) {
	if depth > maxExprDepth {
		return nil, r.wrong(e.Pos(), "", "the expression is nested more than %d deep", maxExprDepth)
	}
	if r.nodes++; r.nodes > maxExprNodes {
		return nil, r.wrong(e.Pos(), "divide it into several", "the expression has more than %d parts", maxExprNodes)
	}
	at := r.offset(e.Pos())
	switch e := e.(type) {
	case *ast.ParenExpr:
		return r.read(e.X, depth+1)
	case *ast.BasicLit:
		return r.number(e)
	case *ast.Ident:
		if _, ok := r.text.first[e.Name]; !ok {
			r.text.first[e.Name] = at
			r.text.names = append(r.text.names, e.Name)
		}
		return &exprNode{at: at, name: e.Name}, nil
	case *ast.UnaryExpr:
		if e.Op == token.ADD {
			return r.read(e.X, depth+1)
		}
		if lit, ok := e.X.(*ast.BasicLit); ok && e.Op == token.SUB {
			n, err := r.number(lit)
			if err == nil {
				n.at, n.value = at, -n.value
			}
			return n, err
		}
		name, ok := exprSigns[e.Op]
		if !ok {
			return nil, r.wrong(e.OpPos, "", "the operator %s has no meaning here", e.Op)
		}
		return r.call(at, e.Op.String(), name, depth, e.X)
	case *ast.BinaryExpr:
		at := r.offset(e.OpPos)
		name, ok := exprOperators[e.Op]
		if !ok {
			return nil, r.wrong(e.OpPos, "", "the operator %s has no meaning here", e.Op)
		}
		if star, ok := e.Y.(*ast.StarExpr); ok && e.Op == token.MUL {
			return nil, r.wrong(star.Star-1, "pow(x, 2) is a power", "the operator ** is not Go's")
		}
		if x, ok := e.X.(*ast.BinaryExpr); ok && compares(e.Op) && compares(x.Op) {
			return nil, r.wrong(e.OpPos, "a < b && b < c", "comparisons do not chain")
		}
		return r.call(at, e.Op.String(), name, depth, e.X, e.Y)
	case *ast.CallExpr:
		name, ok := e.Fun.(*ast.Ident)
		if !ok {
			return nil, r.wrong(e.Pos(), "exp(x), without a package", "only a function's name can be called")
		}
		if e.Ellipsis.IsValid() {
			return nil, r.wrong(e.Ellipsis, "", "... has no meaning here")
		}
		return r.call(at, name.Name, name.Name, depth, e.Args...)
	}
	what, hint := "this", ""
	switch e.(type) {
	case *ast.SelectorExpr:
		what, hint = "a name with a dot", "give what it stands for a name of its own"
	case *ast.IndexExpr, *ast.SliceExpr, *ast.IndexListExpr:
		what, hint = "an index", "index the operand before"
	case *ast.FuncLit:
		what = "a function"
	case *ast.StarExpr:
		what = "a pointer"
	}
	return nil, r.wrong(e.Pos(), hint, "%s has no meaning here: an expression is made of numbers, names, operators and functions", what)
}

func compares(t token.Token) bool {
	return slices.Contains([]token.Token{token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ}, t)
}

func (r *exprReader) number(e *ast.BasicLit) (*exprNode, error) {
	n := &exprNode{at: r.offset(e.Pos()), kind: kindFloat}
	var err error
	switch e.Kind {
	case token.INT:
		var i int64
		if i, err = strconv.ParseInt(e.Value, 0, 64); err == nil {
			n.kind, n.value = kindInt, float64(i)
			if i > 1<<53 {
				err = strconv.ErrRange
			}
		}
	case token.FLOAT:
		n.value, err = strconv.ParseFloat(e.Value, 64)
	default:
		return nil, r.wrong(e.Pos(), "", "%s is not a real number", e.Value)
	}
	if err != nil {
		return nil, r.wrong(e.Pos(), "an integer has at most 53 bits, a float is a float64", "the number %s is out of range", e.Value)
	}
	return n, nil
}

// call makes the node for a call of the function with this name. written is the name or operator in
// the text.
func (r *exprReader) call(at int, written, name string, depth int, args ...ast.Expr) (*exprNode, error) {
	fn := exprFuncOf(name)
	if fn == nil {
		p := &exprProblem{at: at, msg: "unknown function " + name}
		if method := exprWholes[strings.ToLower(name)]; method != "" {
			p.msg = name + " is not elementwise, and an expression is: it computes each element from those at its place"
			p.hint = "apply ." + method + " to what Expr returns, or give what it returns as an operand"
			return nil, p
		}
		if near := didyoumean.Nearest(name, exprFuncNames(), len(name)/2); near != "" {
			p.hint = "did you mean " + near + "?"
		}
		return nil, p
	}
	if least := fn.takes(); len(args) < least || len(args) > least && !fn.folds {
		s := "s"
		if least == 1 {
			s = ""
		}
		more := ""
		if fn.folds {
			more = " or more"
		}
		p := &exprProblem{at: at, msg: fmt.Sprintf("%s takes %d%s argument%s, it is given %d", written, least, more, s, len(args))}
		if fn.folds && len(args) == 1 {
			p.hint = fmt.Sprintf("the %s of a tensor is not elementwise: .Amax or .Amin of what Expr returns", written)
		}
		return nil, p
	}
	n := &exprNode{at: at, name: written, fn: fn}
	for _, a := range args {
		arg, err := r.read(a, depth+1)
		if err != nil {
			return nil, err
		}
		n.args = append(n.args, arg)
	}
	if fn.folds {
		for len(n.args) > 2 { // max(a, b, c) is max(max(a, b), c)
			first := &exprNode{at: at, name: written, fn: fn, args: n.args[:2:2]}
			n.args = append([]*exprNode{first}, n.args[2:]...)
		}
	}
	if fn.rewrite != nil {
		return fn.rewrite(n), nil
	}
	return n, nil
}
