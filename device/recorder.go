package device

import "errors"

// Recorder is satisfied by devices that can record work and repeat it: as one launch of a CUDA
// graph, or as one call that runs a list of primitives on the CPU.
type Recorder interface {
	// NewRecording starts a recording of work on this device, and on other devices of its driver,
	// if given. Any number of recordings may be open at once. Work on streams outside the recording
	// runs as usual. If a device cannot be recorded with this one, or is given twice, the error is
	// an *[OperandError].
	NewRecording(others ...Device) (Recording, error)
}

// Recording is work that is being recorded. It ends with Finish or Abort.
type Recording interface {
	// Stream returns the recording's first stream. Work queued on it does not run: it is recorded,
	// with its current addresses and scalars. Buffers that are allocated on it belong to the
	// recording. If one is freed, only this stream reuses the memory, in its order, until
	// [Replayer.Close]. Other buffers that recorded work uses must not be freed before that either.
	// Every replay waits for whatever the stream has waited for.
	//
	// Operations that cannot be recorded return a *[RecordError] and leave the recording unchanged.
	// These are all operations in which the host waits (Download, Synchronize, Wait of an event
	// that is only recorded) and copies from devices that take no part. Upload is another, because
	// a replay would repeat the same bytes. Copies from and to page-locked memory are recorded:
	// each replay reads or writes that memory. It is not reused before [Replayer.Close], even if it
	// is freed. When the recording has ended, the stream is an ordinary one.
	Stream() Stream
	// On returns the recording's first stream of a device. For the Recorder's own device, that is
	// the result of Stream. For a device that takes no part, it is nil.
	On(d Device) Stream
	// Fork returns another stream of the recording. Its work and that of the recording's other
	// streams are ordered only by waits for each other's marks, and every replay keeps this order.
	// Memory that is allocated on it belongs to the recording too. Freed memory is reused on that
	// stream when the stream comes after all work that uses it. The recording's first stream
	// (Stream) must wait, directly or through other streams, for the last work of the new one.
	//
	// If the new stream waits for a mark from outside that is set only once, all replays run after
	// that mark. Other waits for outside work return a *[RecordError], because replays would not
	// wait again. A wait of an outside stream for a stream of the recording also returns a
	// *[RecordError]. If the device on takes no part in the recording, the error is an
	// *[OperandError].
	Fork(on Device) (Stream, error)
	// For sets a value that identifies the recording's user. It must be called before anything is
	// queued on the recording's streams.
	For(whom any)
	// Feed returns a buffer that the host fills anew for each replay, at this place in the order of
	// the device's first stream. If the device takes no part, the error is an *[OperandError].
	Feed(on Device, bytes int, o Origin) (Buffer, error)
	// Finish ends the recording. If Stream does not come after some recorded work, the error is a
	// *[RecordError]; its field Stream is the stream of that work. After an error the recording is
	// over, as after Abort.
	Finish() (Replayer, error)
	// Abort ends the recording without a result. Its buffers become ordinary ones, with undefined
	// contents.
	Abort()
}

// Replayer repeats recorded work. Its methods are safe for concurrent use.
type Replayer interface {
	// Replay queues the recorded work on the recording's stream in one launch. It calls fill for
	// each [Recording.Feed], in their order, to write the bytes for this replay. It returns without
	// waiting for the work, but only a few replays can be queued at once.
	Replay(fill func(feed int, to []byte)) error
	// Operations returns the number of kernels, copies and fills of one replay.
	Operations() int
	// Close waits for the replays and frees the memory. A second call has no effect.
	Close() error
}

// RecordingStream is satisfied by the streams of devices that are Recorders.
type RecordingStream interface {
	Stream
	// Recording reports whether work on the stream is recorded now.
	Recording() bool
	// RecordedFor returns the value that [Recording.For] set for the stream's recording. It is nil
	// if none was set, or if the stream is not being recorded.
	RecordedFor() any
}

// ErrRecording is wrapped by every [RecordError], for errors.Is.
var ErrRecording = errors.New("not recordable")

// RecordError says which operation cannot be recorded, and why.
type RecordError struct {
	Device string
	Op     string // the operation: "download"
	Why    string
	Stream Stream // the stream that is being recorded; nil if no stream in particular
}

// Error returns a text such as "cuda:0: download cannot be recorded: …".
func (e *RecordError) Error() string {
	return e.Device + ": " + e.Op + " cannot be recorded: " + e.Why
}

// Unwrap returns [ErrRecording].
func (e *RecordError) Unwrap() error { return ErrRecording }

// ReplayError is the error of one op of a replay on the CPU. The ops before it have run, the ops
// after it have not.
type ReplayError struct {
	Callers []uintptr // the stack that recorded the op, as runtime.Callers returns it
	Err     error
}

// Error returns the text of the op's error.
func (e *ReplayError) Error() string { return e.Err.Error() }

// Unwrap returns the op's error.
func (e *ReplayError) Unwrap() error { return e.Err }
