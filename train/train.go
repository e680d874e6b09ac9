// Package train is what stands around a training step: the loop, metrics, early stopping, progress.
//
// [Adapt] computes gradients of batches that do not fit into a device's memory, in parts, and gets
// over running out of it without losing a step. [Fit] runs a training with it: epochs,
// accumulation, clipping, schedules, evaluation, checkpoints. After an interruption it goes on
// with the same bits as if there had been none. It trains on one device, or on several at once.
//
// Metrics add up on the device and are read once. Nothing here waits for the device in a step;
// losses are collected there and read every few steps.
package train

// An Error says what is wrong with the settings of a training.
type Error struct{ Field, Msg string }

func (e *Error) Error() string { return "train: " + e.Field + ": " + e.Msg }

// Raised makes the error one that tensor.Try returns: see device.Raised.
func (e *Error) Raised() {}
