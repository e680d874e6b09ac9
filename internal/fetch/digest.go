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
	gitBlob    digestKind = "git" // SHA-1 of "blob", length and content, as git names a file
	hub        digestKind = "hub"
)

// A Digest tells a published file from any other. The zero value is none, which [File] refuses.
type Digest struct {
	kind digestKind
	hex  string // of sha256, perhaps only its beginning
}

// SHA256 is a digest of 64 hexadecimal digits, or the first 8 or more of them: torch publishes
// weights under names such as resnet18-f37072fd.pth.
func SHA256(digits string) Digest { return Digest{sha256Full, strings.ToLower(digits)} }

// MD5 is a digest of 32 hexadecimal digits. It guards against accidents, not against malice; older
// data sets have no other.
func MD5(digits string) Digest { return Digest{md5Full, strings.ToLower(digits)} }

// HubDigest takes the digest from the server's answer, as the Hugging Face hub gives it: the
// SHA-256 of a large file in X-Linked-Etag, git's SHA-1 of a small one in X-Linked-Etag or ETag. An
// answer without either is an error.
func HubDigest() Digest { return Digest{kind: hub} }

var inName = regexp.MustCompile(`-([0-9a-f]{8,64})\.[^/]*$`)

// DigestInName returns the digest that a file name carries (resnet18-f37072fd.pth), and whether it
// does.
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

// hubHeader reads a digest from the headers of the hub's answer.
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

// check reads the file and returns ErrDigest, wrapped, if it is not the one.
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

// A record stands beside a file or a part of one.
type record struct {
	URL    string `json:"url"`
	Digest string `json:"digest,omitempty"`
	Size   int64  `json:"size"` // of the whole file; -1: the server does not say
	// of a file that was checked: nanoseconds since 1970
	Modified int64  `json:"modified,omitempty"`
	ETag     string `json:"etag,omitempty"` // of a part: what the server called this version
	Date     string `json:"date,omitempty"` // or when it was last modified
}

// readRecord returns ok = false for a record that is not there or cannot be read: it is then made
// again.
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
