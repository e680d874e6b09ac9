// Package tensorboard writes event files for TensorBoard: scalars, texts, histograms and images.
//
// [NewWriter] opens a file in a directory. [Writer.Scalar], [Writer.Text], [Writer.Histogram] and
// [Writer.Image] add to it, and [Writer.Close] ends it. The command "tensorboard --logdir DIR"
// shows them. Writing them does not need TensorFlow.
//
// A file is a sequence of TFRecords. A record consists of length, checksum of the length, data, and
// checksum of the data (https://www.tensorflow.org/tutorials/load_data/tfrecord). The checksums are
// CRC-32C, rotated, plus a constant. The data of each record is an Event in protocol buffer
// encoding (tensorflow/core/util/event.proto and framework/summary.proto in TensorFlow's
// repository).
package tensorboard

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// A Writer appends to one event file. Several goroutines may call its methods. Events are written
// to the file by Flush and Close, and every few seconds while new events arrive.
type Writer struct {
	mu      sync.Mutex
	f       *os.File
	w       *bufio.Writer
	flushed time.Time
	err     error // the first error; after it, events are dropped
}

// flushEvery is the age of the last flush beyond which a new event causes the next flush.
const flushEvery = 2 * time.Second

var files atomic.Int64

// NewWriter creates dir if needed, and a new event file in it. Several files in a directory belong
// to one run. If a training resumes at a step, [Writer.Restart] hides what earlier files have for
// this step and for later steps.
func NewWriter(dir string) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	now := time.Now()
	name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d.%d", now.Unix(), filepath.Base(host), os.Getpid(), files.Add(1)-1)
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	w := &Writer{f: f, w: bufio.NewWriterSize(f, 1<<16), flushed: now}
	w.event(0, fieldFileVersion, []byte("brain.Event:2"))
	if err := w.Flush(); err != nil {
		f.Close()
		return nil, err
	}
	return w, nil
}

// Path returns the name of the event file.
func (w *Writer) Path() string { return w.f.Name() }

// Restart records that the run continues at a step. TensorBoard then ignores earlier events that
// belong to this step or to later steps.
func (w *Writer) Restart(step int) { w.event(step, fieldSessionLog, varint(nil, 1, 1)) }

// Scalar adds a number to the curve named tag.
func (w *Writer) Scalar(tag string, v float64, step int) {
	b := protowire.AppendTag(nil, 2, protowire.Fixed32Type)
	w.summary(step, tag, protowire.AppendFixed32(b, math.Float32bits(float32(v))))
}

// Text adds a text, which TensorBoard shows as Markdown.
func (w *Writer) Text(tag, text string, step int) {
	const dtString = 7
	dim := lengthed(nil, 2, varint(nil, 1, 1))
	tensor := lengthed(lengthed(varint(nil, 1, dtString), 2, dim), 8, []byte(text))
	plugin := lengthed(nil, 1, lengthed(nil, 1, []byte("text")))
	w.summary(step, tag, lengthed(lengthed(nil, 8, tensor), 9, plugin))
}

// Histogram adds the distribution of values. NaN and infinite values are left out.
func (w *Writer) Histogram(tag string, values []float64, step int) {
	h := histogramOf(values)
	var b []byte
	for i, v := range []float64{h.least, h.most, h.n, h.sum, h.squares} {
		b = double(b, protowire.Number(i+1), v)
	}
	b = lengthed(b, 6, doubles(h.limits))
	b = lengthed(b, 7, doubles(h.counts))
	w.summary(step, tag, lengthed(nil, 5, b))
}

// Image adds an image, encoded as PNG.
func (w *Writer) Image(tag string, m image.Image, step int) error {
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		return fmt.Errorf("tensorboard: %s: %w", tag, err)
	}
	const rgba = 4
	size := m.Bounds().Size()
	v := varint(varint(varint(nil, 1, uint64(size.Y)), 2, uint64(size.X)), 3, rgba)
	w.summary(step, tag, lengthed(nil, 4, lengthed(v, 4, b.Bytes())))
	return nil
}

// Flush writes buffered events to the file. It returns the first error since the file was created.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flush()
}

func (w *Writer) flush() error {
	if w.err == nil {
		w.fail(w.w.Flush())
	}
	return w.err
}

// Close flushes and closes the file.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.flush()
	if e := w.f.Close(); e != nil && err == nil {
		w.fail(e)
	}
	return w.err
}

func (w *Writer) fail(err error) {
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("tensorboard: %w", err)
	}
}

// These are field numbers of the message Event.
const (
	fieldFileVersion = 3
	fieldSummary     = 5
	fieldSessionLog  = 7
)

// summary writes an Event with one Summary.Value: a tag and the encoded value.
func (w *Writer) summary(step int, tag string, value []byte) {
	v := append(lengthed(nil, 1, []byte(tag)), value...)
	w.event(step, fieldSummary, lengthed(nil, 1, v))
}

func (w *Writer) event(step int, field protowire.Number, body []byte) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	_, err := w.w.Write(record(encode(float64(now.UnixNano())/1e9, step, field, body)))
	w.fail(err)
	if now.Sub(w.flushed) > flushEvery {
		w.flushed = now
		w.fail(w.w.Flush())
	}
}

// encode returns an encoded Event.
func encode(wall float64, step int, field protowire.Number, body []byte) []byte {
	b := double(nil, 1, wall)
	return lengthed(varint(b, 2, uint64(int64(step))), field, body)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns the checksum of b as a TFRecord contains it: CRC-32C, rotated, plus a constant.
func masked(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// record returns data as a TFRecord.
func record(data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, len(data)+16), uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, masked(b))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, masked(data))
}

func varint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func double(b []byte, field protowire.Number, v float64) []byte {
	b = protowire.AppendTag(b, field, protowire.Fixed64Type)
	return protowire.AppendFixed64(b, math.Float64bits(v))
}

func lengthed(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

func doubles(v []float64) []byte {
	b := make([]byte, 0, 8*len(v))
	for _, x := range v {
		b = protowire.AppendFixed64(b, math.Float64bits(x))
	}
	return b
}
