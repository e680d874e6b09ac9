// Package train is what stands around a training step: the loop itself, metrics, early stopping, progress.
//
// [Fit] runs a training: epochs, accumulation, clipping, schedules, evaluation, checkpoints, and going on after an interruption
// with the same bits as if there had been none. Metrics add up on the device and are read once. Nothing here waits for the
// device in a step; losses are collected there and read every few steps.
package train

// An Error says what is wrong with the settings of a training.
type Error struct{ Field, Msg string }

func (e *Error) Error() string { return "train: " + e.Field + ": " + e.Msg }
