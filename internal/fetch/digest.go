package fetch

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

type digestKind string

const (
	none       digestKind = ""
	sha256Full digestKind = "sha256"
	md5Full    digestKind = "md5"
	// gitBlob is git's name for a file: the SHA-1 of "blob", the length and the contents
	gitBlob digestKind = "git"
	hub     digestKind = "hub"
)

// A Digest identifies the contents of a published file. [File] refuses the zero value, which is no
// digest.
type Digest struct {
	kind digestKind
	hex  string // hexadecimal digits; for SHA-256 perhaps only the first of them
}

// SHA256 returns a SHA-256 digest of 64 hexadecimal digits, or of at least the first 8 of them.
// torch publishes weights under names that contain the first digits: resnet18-f37072fd.pth.
func SHA256(digits string) Digest { return Digest{sha256Full, strings.ToLower(digits)} }

// MD5 returns an MD5 digest of 32 hexadecimal digits. It detects accidental changes, but not
// intended ones. Older datasets have no other digest.
func MD5(digits string) Digest { return Digest{md5Full, strings.ToLower(digits)} }

// HubDigest returns a Digest that is taken from the server's answer, as the Hugging Face hub sends
// it. For a large file it is the SHA-256 in X-Linked-Etag. For a small file it is git's SHA-1 in
// X-Linked-Etag or ETag. An answer without either header is an error.
func HubDigest() Digest { return Digest{kind: hub} }

var inName = regexp.MustCompile(`-([0-9a-f]{8,64})\.[^/]*$`)

// DigestInName returns the digest in a file name such as resnet18-f37072fd.pth, and whether there
// is one.
func DigestInName(name string) (Digest, bool) {
	m := inName.FindStringSubmatch(name)
	if m == nil {
		return Digest{}, false
	}
	return SHA256(m[1]), true
}

// String returns the kind and the digits.
func (d Digest) String() string {
	if d.kind == none || d.kind == hub {
		return string(d.kind)
	}
	return string(d.kind) + ":" + d.hex
}

func (d Digest) valid() error {
	least, most := 0, 0
	switch d.kind {
	case sha256Full:
		least, most = 8, 64
	case md5Full:
		least, most = 32, 32
	case gitBlob:
		least, most = 40, 40
	}
	if len(d.hex) < least || len(d.hex) > most || strings.Trim(d.hex, "0123456789abcdef") != "" {
		return fmt.Errorf("%q is not a digest of kind %s", d.hex, d.kind)
	}
	return nil
}

func parseDigest(text string) (Digest, error) {
	kind, digits, _ := strings.Cut(text, ":")
	d := Digest{digestKind(kind), digits}
	if d.kind != sha256Full && d.kind != md5Full && d.kind != gitBlob {
		return Digest{}, fmt.Errorf("%q is not a digest", text)
	}
	return d, d.valid()
}

// hubHeader returns the digest in the headers of an answer of the Hugging Face hub.
func hubHeader(h http.Header) (Digest, bool) {
	for _, name := range []string{"X-Linked-Etag", "Etag"} {
		tag := strings.ToLower(strings.Trim(strings.TrimPrefix(h.Get(name), "W/"), `"`))
		for _, d := range []Digest{{sha256Full, tag}, {gitBlob, tag}} {
			if (len(tag) == 64 || len(tag) == 40) && d.valid() == nil && (len(tag) == 64) == (d.kind == sha256Full) {
				return d, true
			}
		}
	}
	return Digest{}, false
}

// check computes the digest of the file at path. If it differs from d, the error wraps ErrDigest.
func (d Digest) check(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var h hash.Hash
	switch d.kind {
	case sha256Full:
		h = sha256.New()
	case md5Full:
		h = md5.New()
	case gitBlob:
		info, err := f.Stat()
		if err != nil {
			return err
		}
		h = sha1.New()
		fmt.Fprintf(h, "blob %d\x00", info.Size())
	default:
		return ErrNoDigest
	}
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); !strings.HasPrefix(got, d.hex) {
		return fmt.Errorf("%w: %s has %s:%s, %s is wanted", ErrDigest, filepath.Base(path), d.kind, got, d)
	}
	return nil
}

// A record holds what is known about a file or a partial download. It is stored in another file in
// the same directory.
type record struct {
	URL    string `json:"url"`
	Digest string `json:"digest,omitempty"`
	Size   int64  `json:"size"` // size of the whole file; -1 if unknown
	// modification time of a checked file, in nanoseconds since 1970
	Modified int64 `json:"modified,omitempty"`
	// ETag of the version to which a partial download belongs
	ETag string `json:"etag,omitempty"`
	// modification date of that version, if there is no ETag
	Date string `json:"date,omitempty"`
}

// readRecord reads a record. The result ok is false if the record is missing or unreadable. The
// caller then makes a new record.
func readRecord(path string) (r record, ok bool) {
	info, err := os.Stat(path)
	if err != nil || info.Size() > 1<<16 {
		return r, false
	}
	text, err := os.ReadFile(path)
	return r, err == nil && json.Unmarshal(text, &r) == nil
}

func writeRecord(path string, r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}
