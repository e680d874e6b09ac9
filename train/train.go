// Package train has the loop around a training step, with metrics, early stopping and progress.
//
// A program uses it in three ways:
//
//   - [Fit] runs a training: epochs, accumulation, clipping, schedules, evaluation, checkpoints. It
//     trains on one device, or on several devices together. After an interruption it continues, and
//     its result is bitwise equal to that of an uninterrupted training.
//   - [Adapt], which Fit uses, is for your own loops. If a batch does not fit into a device's
//     memory, it computes the gradients in parts. When the device runs out of memory, no step is
//     lost.
//   - [Plan] says before a training what resources a step needs: memory, operations, time.
//
// Metrics ([NewAccuracy], [NewConfusion], …) are accumulated on the device and read once. Losses
// are collected on the device and read every few steps. Therefore most steps do not wait for the
// device.
package train

// An Error describes a wrong setting of a training.
type Error struct{ Field, Msg string }

func (e *Error) Error() string { return "train: " + e.Field + ": " + e.Msg }

// Raised marks *Error as a type of error that a panic raises and tensor.Try returns. The interface
// device.Raised requires it.
func (e *Error) Raised() {}
