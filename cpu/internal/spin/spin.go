// Package spin has the instruction for loops that wait for another core.
package spin

// Pause waits some ten nanoseconds. It tells the processor that its caller waits in a loop: the
// core then leaves its units to its other thread, and saves power. It does nothing on processors
// without such an instruction.
func Pause() { pause() }
