package tensor

import "github.com/flambeau-go/flambeau/device"

// This file has the autocast classes of the library's functions, one in each line. A test reports
// functions that are missing here. The class of some functions, such as normalisations, depends on
// more than the operands. The methods that make these functions set the class with [WithAutocast].

func (*attentionFunc) Autocast() AutocastClass  { return AutocastLow }
func (*convFunc) Autocast() AutocastClass       { return AutocastLow }
func (*convDataFunc) Autocast() AutocastClass   { return AutocastLow }
func (*convWeightFunc) Autocast() AutocastClass { return AutocastLow }
func (matmulFunc) Autocast() AutocastClass      { return AutocastLow }
func (addProductFunc) Autocast() AutocastClass  { return AutocastLow }

func (cdistFunc) Autocast() AutocastClass        { return AutocastHigh }
func (crossEntropyFunc) Autocast() AutocastClass { return AutocastHigh }
func (erfinvFunc) Autocast() AutocastClass       { return AutocastHigh }
func (*logSumExpFunc) Autocast() AutocastClass   { return AutocastHigh }
func (nllFunc) Autocast() AutocastClass          { return AutocastHigh }
func (*normFunc) Autocast() AutocastClass        { return AutocastHigh }
func (*prodFunc) Autocast() AutocastClass        { return AutocastHigh }
func (softmaxFunc) Autocast() AutocastClass      { return AutocastHigh }

func (dotFunc) Autocast() AutocastClass { return AutocastWidest }

func (catFunc) Autocast() AutocastClass              { return AutocastOff }
func (*partFunc) Autocast() AutocastClass            { return AutocastOff }
func (choleskyFunc) Autocast() AutocastClass         { return AutocastOff }
func (*dropoutFunc) Autocast() AutocastClass         { return AutocastOff }
func (*dropoutAddFunc) Autocast() AutocastClass      { return AutocastOff }
func (*reluDropoutFunc) Autocast() AutocastClass     { return AutocastOff }
func (*alphaDropoutFunc) Autocast() AutocastClass    { return AutocastOff }
func (*unfold2dFunc) Autocast() AutocastClass        { return AutocastOff }
func (*foldFunc) Autocast() AutocastClass            { return AutocastOff }
func (*unfoldGradFunc) Autocast() AutocastClass      { return AutocastOff }
func (gatherFunc) Autocast() AutocastClass           { return AutocastOff }
func (namedFunc) Autocast() AutocastClass            { return AutocastOff }
func (stopFunc) Autocast() AutocastClass             { return AutocastOff }
func (gluFunc) Autocast() AutocastClass              { return AutocastOff }
func (triangleFunc) Autocast() AutocastClass         { return AutocastOff }
func (indexPutFunc) Autocast() AutocastClass         { return AutocastOff }
func (inverseFunc) Autocast() AutocastClass          { return AutocastOff }
func (detFunc) Autocast() AutocastClass              { return AutocastOff }
func (cofactorFunc) Autocast() AutocastClass         { return AutocastOff }
func (cofactorGrad) Autocast() AutocastClass         { return AutocastOff }
func (logDetFunc) Autocast() AutocastClass           { return AutocastOff }
func (matrixExpFunc) Autocast() AutocastClass        { return AutocastOff }
func (*normalizeFunc) Autocast() AutocastClass       { return AutocastOff }
func (*syncNormFunc) Autocast() AutocastClass        { return AutocastOff }
func (pinFunc) Autocast() AutocastClass              { return AutocastOff }
func (*avgFunc) Autocast() AutocastClass             { return AutocastOff }
func (*avgGradFunc) Autocast() AutocastClass         { return AutocastOff }
func (maxFunc) Autocast() AutocastClass              { return AutocastOff }
func (*putFunc) Autocast() AutocastClass             { return AutocastOff }
func (*extremeFunc) Autocast() AutocastClass         { return AutocastOff }
func (*intoFunc) Autocast() AutocastClass            { return AutocastOff }
func (flipFunc) Autocast() AutocastClass             { return AutocastOff }
func (rollFunc) Autocast() AutocastClass             { return AutocastOff }
func (*ropeFunc) Autocast() AutocastClass            { return AutocastOff }
func (placesFunc) Autocast() AutocastClass           { return AutocastOff }
func (scatterFunc) Autocast() AutocastClass          { return AutocastOff }
func (scatterIntoFunc) Autocast() AutocastClass      { return AutocastOff }
func (scatterReduceFunc) Autocast() AutocastClass    { return AutocastOff }
func (searchFunc) Autocast() AutocastClass           { return AutocastOff }
func (linearInt8Func) Autocast() AutocastClass       { return AutocastOff }
func (intMatmulFunc) Autocast() AutocastClass        { return AutocastOff }
func (solveFunc) Autocast() AutocastClass            { return AutocastOff }
func (triangularFunc) Autocast() AutocastClass       { return AutocastOff }
func (pinvFunc) Autocast() AutocastClass             { return AutocastOff }
func (orderFunc) Autocast() AutocastClass            { return AutocastOff }
func (blendFunc) Autocast() AutocastClass            { return AutocastOff }
func (blendGradFunc) Autocast() AutocastClass        { return AutocastOff }
func (sharedFunc) Autocast() AutocastClass           { return AutocastOff }
func (castFunc) Autocast() AutocastClass             { return AutocastOff }
func (toFunc) Autocast() AutocastClass               { return AutocastOff }
func (gatherDevicesFunc) Autocast() AutocastClass    { return AutocastOff }
func (reduceAddDevicesFunc) Autocast() AutocastClass { return AutocastOff }
func (*varFunc) Autocast() AutocastClass             { return AutocastOff }

func (f scanFunc) Autocast() AutocastClass {
	if f.kind == device.ScanSum || f.kind == device.ScanProd {
		return AutocastHigh
	}
	return AutocastOff
}
