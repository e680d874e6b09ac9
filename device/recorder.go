package device

import "errors"

// Recorder is satisfied by devices that can record work and repeat it. On a GPU, a repetition is
// one launch of a CUDA graph. On the CPU, it is one call that runs a list of primitives.
type Recorder interface {
	// NewRecording starts a recording of work on this device. If other devices of the same driver
	// are given, it records their work too. Several recordings may be open at the same time. Work
	// on streams outside the recording runs as usual. The error is an *[OperandError] if a device
	// is given twice or cannot be recorded together with the first device.
	NewRecording(others ...Device) (Recording, error)
}

// Recording is work that is being recorded. A call of Finish or Abort ends it.
type Recording interface {
	// Stream returns the recording's first stream. Work queued on it does not run: it is recorded,
	// with its current addresses and scalars. Buffers that are allocated on it belong to the
	// recording. If such a buffer is freed, only this stream reuses the memory, in stream order,
	// until [Replayer.Close]. Other buffers that the recorded work uses must not be freed before
	// [Replayer.Close]. If the stream waits for an event during the recording, every replay waits
	// for that event too.
	//
	// Operations that cannot be recorded return a *[RecordError] and leave the recording unchanged.
	// These are all operations in which the host waits: Download, Synchronize, and Wait for an
	// event of the recording. Upload cannot be recorded either, because every replay would upload
	// the same bytes. Copies from devices that take no part in the recording cannot be recorded.
	// Copies from and to page-locked memory are recorded: each replay reads or writes that memory.
	// The memory is not reused before [Replayer.Close], even if it is freed. When the recording has
	// ended, the stream is an ordinary stream.
	Stream() Stream
	// On returns the recording's first stream on device d. For the device that began the recording,
	// it is the same stream as Stream(). If d takes no part in the recording, On returns nil.
	On(d Device) Stream
	// Fork returns a further stream of the recording, on device dev. Its work runs concurrently
	// with the work of the recording's other streams, except where one stream waits for an event of
	// another. Every replay repeats these waits. Memory that is allocated on the new stream belongs
	// to the recording too. The new stream reuses freed memory only for work that is ordered after
	// all uses of that memory. The recording's first stream (Stream) must wait, directly or through
	// other streams, for the last work of the new stream.
	//
	// The new stream may wait for an event of a stream outside the recording, if that event is set
	// only once. All replays then run after that event. Other waits for work outside the recording
	// return a *[RecordError], because replays would not wait again. A wait of an outside stream
	// for a stream of the recording also returns a *[RecordError]. If the given device takes no
	// part in the recording, the error is an *[OperandError].
	Fork(dev Device) (Stream, error)
	// For sets a value that identifies the user of the recording: [RecordingStream.RecordedFor]
	// returns it. For must be called before anything is queued on the recording's streams.
	For(user any)
	// Feed returns a buffer of the given device whose contents the host supplies anew for each
	// replay: see [Replayer.Replay]. A replay copies the contents at this point in the order of the
	// device's first stream. If the device takes no part in the recording, the error is an
	// *[OperandError].
	Feed(dev Device, bytes int, o Origin) (Buffer, error)
	// Finish ends the recording. The recording's first stream must have waited for the work of all
	// its other streams, directly or through other streams. Otherwise the error is a
	// *[RecordError], whose field Stream is a stream that was not waited for. After an error the
	// recording has ended, as after Abort.
	Finish() (Replayer, error)
	// Abort ends the recording without a result. The recording's buffers become ordinary buffers,
	// with undefined contents.
	Abort()
}

// Replayer repeats recorded work. Its methods are safe for concurrent use.
type Replayer interface {
	// Replay queues the recorded work on the recording's stream in one launch. For each buffer that
	// [Recording.Feed] returned, in the order of those calls, it calls fill to write the bytes for
	// this replay. Replay does not wait for the work. It may wait for an earlier replay, because
	// only a few replays can be queued at the same time.
	Replay(fill func(feed int, dst []byte)) error
	// Operations returns the number of kernels, copies and fills of one replay.
	Operations() int
	// Close waits for all queued replays and frees the recording's memory. A second call has no
	// effect.
	Close() error
}

// RecordingStream is satisfied by the streams of devices that are Recorders.
type RecordingStream interface {
	Stream
	// Recording reports whether work on the stream is recorded now.
	Recording() bool
	// RecordedFor returns the value that [Recording.For] set for the stream's recording. It is nil
	// if no value was set, or if the stream is not being recorded.
	RecordedFor() any
}

// HostGuard is satisfied by the streams of a recording on a device whose memory the host can
// access.
type HostGuard interface {
	RecordingStream
	// Guard returns a buffer with b's memory, for work on the stream. The buffer's method Host
	// panics with a *[RecordError]: the recorded work has not run, so the memory has no contents to
	// read.
	Guard(b Buffer) Buffer
}

// ErrRecording is wrapped by every [RecordError], for errors.Is.
var ErrRecording = errors.New("not recordable")

// RecordError says which operation cannot be recorded, and why.
type RecordError struct {
	Device string
	Op     string // name of the operation: "download"
	Why    string
	Stream Stream // stream that is being recorded; nil if the error concerns no single stream
}

// Error returns a text such as "cuda:0: download cannot be recorded: …".
func (e *RecordError) Error() string {
	return e.Device + ": " + e.Op + " cannot be recorded: " + e.Why
}

// Unwrap returns [ErrRecording].
func (e *RecordError) Unwrap() error { return ErrRecording }

// ReplayError is the error of one op of a replay on the CPU. The ops recorded before it have run;
// the ops after it have not.
type ReplayError struct {
	Callers []uintptr // stack of the call that recorded the op, as runtime.Callers returns it
	Err     error
}

// Error returns the text of the op's error.
func (e *ReplayError) Error() string { return e.Err.Error() }

// Unwrap returns the op's error.
func (e *ReplayError) Unwrap() error { return e.Err }
