// Package train has everything around a training step: the loop, metrics, early stopping, progress.
//
// [Fit] runs a training: epochs, accumulation, clipping, schedules, evaluation, checkpoints. After
// an interruption it continues with the same bits as an uninterrupted training. It trains on one
// device, or on several at once.
//
// [Adapt], which Fit uses, also serves your own loops. It computes the gradients of a batch in
// parts if the batch does not fit into a device's memory. No step is lost when memory runs out.
//
// [Plan] says before a training what a step needs: memory, operations, time.
//
// Metrics accumulate on the device and are read once. No step waits for the device: losses are
// collected there and read every few steps.
package train

// An Error describes a wrong setting of a training.
type Error struct{ Field, Msg string }

func (e *Error) Error() string { return "train: " + e.Field + ": " + e.Msg }

// Raised marks an error that is raised by panic and that tensor.Try returns: see device.Raised.
func (e *Error) Raised() {}
