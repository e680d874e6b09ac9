package device

import "errors"

// Recorder is satisfied by devices that record work and repeat it in one launch: CUDA graphs.
type Recorder interface {
	// NewRecording starts a recording of this device's work, and of that of other devices of its
	// driver, if any. Any number may be open at once; what is queued on streams that are not theirs
	// runs as ever. The error is an *[OperandError] for a device that cannot be recorded with this
	// one, and for one that is given twice.
	NewRecording(others ...Device) (Recording, error)
}

// A Recording is work that is being recorded. It ends with Finish or Abort.
type Recording interface {
	// Stream is the recording's first. What is queued on it does not run: it is recorded, with
	// addresses and scalars as they are now. Buffers that are allocated on it are the recording's:
	// freed ones serve it again, in its order, and nobody else until [Replayer.Close]. Other
	// buffers that are recorded must not be freed before that either. What the stream has waited
	// for is waited for by all replays.
	//
	// What cannot be recorded returns a *[RecordError] and leaves the recording as it was. That is
	// whatever makes the host wait (Download, Synchronize, Wait of an event that is only recorded),
	// copies from devices that take no part, and an Upload, whose bytes a replay would repeat.
	// Copies from and to page-locked memory are recorded: each replay reads or writes it, and until
	// [Replayer.Close] it serves nobody else, also where it is freed. When the recording has ended
	// the stream is like others.
	Stream() Stream
	// On returns the recording's first stream of a device: Stream's for that of the Recorder, and
	// nil for one that takes no part.
	On(d Device) Stream
	// Fork returns another stream of the recording. It is in no order with the others but that of
	// waits: for marks of streams of this recording, which every replay keeps. Memory that is
	// allocated on it is the recording's, too; freed, it serves that stream again as soon as the
	// stream's order is behind all that uses it. What it does last is to be waited for by Stream,
	// directly or by way of others.
	//
	// A mark from outside that is set once is waited for before all replays. The error for a mark
	// that may be set again, and for all that another stream does, is a *[RecordError], as replays
	// would not wait again. So is that of a stream that is not of the recording and waits for one
	// that is. The stream is of a device that takes part; another one is an *[OperandError].
	Fork(on Device) (Stream, error)
	// For says whom the recording is for, before anything is queued on its streams.
	For(whom any)
	// Feed returns a buffer that each replay fills anew from the host, at this place of the order
	// of the device's first stream. A device that takes no part is an *[OperandError].
	Feed(on Device, bytes int, o Origin) (Buffer, error)
	// Finish ends the recording. Work that Stream does not come after is a *[RecordError], whose
	// Stream is that which did it. After an error it is over, as after Abort.
	Finish() (Replayer, error)
	// Abort ends the recording without a result. Its buffers become ordinary ones, whose contents
	// are undefined.
	Abort()
}

// A Replayer repeats what was recorded. Its methods are safe for concurrent use.
type Replayer interface {
	// Replay queues the recorded work on the recording's stream in one launch. fill is called for
	// each [Recording.Feed], in their order, for the bytes that this replay gives it. It returns
	// without waiting for the work; at most a few replays wait in the queue.
	Replay(fill func(feed int, to []byte)) error
	// Operations is the number of kernels, copies and fills of one replay.
	Operations() int
	// Close waits for the replays and gives the memory back. A second call has no effect.
	Close() error
}

// RecordingStream is satisfied by the streams of devices that are Recorders.
type RecordingStream interface {
	Stream
	// Recording reports whether what is queued now is recorded.
	Recording() bool
	// RecordedFor returns whom the recording is for that takes what is queued now: see
	// [Recording.For]. It is nil where nobody was named, or the work runs.
	RecordedFor() any
}

// ErrRecording is what every [RecordError] is, for errors.Is.
var ErrRecording = errors.New("not recordable")

// A RecordError says what cannot be recorded, and why.
type RecordError struct {
	Device string
	Op     string // "download"
	Why    string
	Stream Stream // that is being recorded; nil: no one in particular
}

// Error reads like "cuda:0: download cannot be recorded: …".
func (e *RecordError) Error() string {
	return e.Device + ": " + e.Op + " cannot be recorded: " + e.Why
}

// Unwrap returns [ErrRecording].
func (e *RecordError) Unwrap() error { return ErrRecording }
