// Package train is what stands around a training step: the loop, metrics, early stopping, progress.
//
// [Fit] runs a training: epochs, accumulation, clipping, schedules, evaluation, checkpoints. After
// an interruption it goes on with the same bits as if there had been none. It trains on one device,
// or on several at once.
//
// [Adapt], which Fit uses, is for loops of one's own. It computes the gradients of a batch that
// does not fit into a device's memory in parts. When the device runs out of memory, no step is
// lost.
//
// [Plan] says before a training what a step takes: memory, operations, time.
//
// Metrics add up on the device and are read once. Nothing here waits for the device in a step:
// losses are collected there and read every few steps.
package train

// An Error says what is wrong with the settings of a training.
type Error struct{ Field, Msg string }

func (e *Error) Error() string { return "train: " + e.Field + ": " + e.Msg }

// Raised makes the error one that tensor.Try returns: see device.Raised.
func (e *Error) Raised() {}
