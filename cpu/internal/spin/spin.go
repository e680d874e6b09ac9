// Package spin has an instruction for loops that wait for another core.
package spin

// Pause waits for about ten nanoseconds. It tells the processor that its caller waits in a loop:
// then the core's other thread can use the core's execution units, and the core saves power. It
// does nothing on processors without such an instruction.
func Pause() { pause() }
