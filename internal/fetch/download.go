package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	// greatest number of requests for a file to one server
	maxRequests = 200
	maxWait     = time.Minute // upper limit of the pause between two requests
)

// download downloads the file from the first server that has it.
func (j *job) download(ctx context.Context) error {
	var all []error
	offline := true
	for _, addr := range j.URLs {
		err := j.fromServer(ctx, addr)
		if err == nil {
			return nil
		}
		var disk *diskError
		if ctx.Err() != nil || errors.As(err, &disk) {
			return j.fail(nil, err)
		}
		offline = offline && unreachable(err)
		if len(j.URLs) > 1 {
			err = fmt.Errorf("%s: %w", redact(addr), err)
		}
		all = append(all, err)
	}
	err := errors.Join(all...)
	if offline {
		return j.offline(err)
	}
	for _, kind := range []error{ErrDigest, ErrTooLarge, ErrNoDigest} {
		if errors.Is(err, kind) {
			return j.fail(kind, err)
		}
	}
	return j.fail(nil, err)
}

// unreachable reports whether no server answered at all.
func unreachable(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &dns) || errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect")
}

// fromServer downloads the file from one server, in as many requests as necessary.
func (j *job) fromServer(ctx context.Context, addr string) error {
	fails := 0
	for request := 1; ; request++ {
		before := size(j.path + ".part")
		again, err := j.request(ctx, addr)
		if err == nil {
			return nil
		}
		if !again || ctx.Err() != nil || request == maxRequests {
			return err
		}
		if fails++; size(j.path+".part") > before {
			fails = 1
		}
		most := j.Attempts
		if unreachable(err) {
			most = min(most, 2) // if there is no network, do not make the user wait for long
		}
		if fails >= most {
			return fmt.Errorf("%w (%d tries)", err, fails)
		}
		wait := min(j.Wait<<(fails-1), maxWait)
		// the pause is random, so many machines do not retry at the same moment
		wait += time.Duration(rand.Int64N(int64(wait)/2 + 1))
		var status *StatusError
		if errors.As(err, &status) && status.After > 0 {
			wait = min(status.After, maxWait)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// discard deletes the partial download.
func (j *job) discard() {
	os.Remove(j.path + ".part")
	os.Remove(j.path + ".part.json")
}

// resumable returns how many bytes from this address are already downloaded, and the record about
// them.
func (j *job) resumable(addr string) (have int64, r record) {
	r, ok := readRecord(j.path + ".part.json")
	have = size(j.path + ".part")
	// If the server names no version, the download may mix parts of two versions. Such a mixture is
	// detected only if the digest is known in advance.
	known := r.ETag != "" || r.Date != "" || j.Digest.kind != hub
	if !ok || have == 0 || r.URL != addr || !known || r.Size >= 0 && have > r.Size {
		j.discard()
		return 0, record{}
	}
	return have, r
}

// request sends one request and appends the answer to the partial download. The result retry
// reports whether another request may help.
func (j *job) request(ctx context.Context, addr string) (retry bool, err error) {
	have, r := j.resumable(addr)
	resumed := have > 0
	if !resumed || have != r.Size {
		if retry, err = j.transfer(ctx, addr, have, &r); err != nil {
			return retry, err
		}
	}
	d := j.Digest
	if d.kind == hub {
		if d, err = parseDigest(r.Digest); err != nil {
			return false, ErrNoDigest
		}
	}
	if err := d.check(j.path + ".part"); err != nil {
		if !errors.Is(err, ErrDigest) {
			return false, &diskError{err}
		}
		j.discard()
		// if the whole file came in one answer, another request would get the same bytes
		return resumed || r.Size < 0, err
	}
	if err := os.Rename(j.path+".part", j.path); err != nil {
		return false, &diskError{err}
	}
	os.Remove(j.path + ".part.json")
	os.Remove(j.path + ".fetched")
	syncDir(filepath.Dir(j.path))
	j.remember(d)
	return false, nil
}

// transfer sends a request and appends the answer to the partial download. The argument offset is
// the number of bytes that are already downloaded. transfer stores in r what the answer says about
// the file.
func (j *job) transfer(parent context.Context, addr string, offset int64, r *record) (retry bool, err error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	silent := time.AfterFunc(j.Stall, func() { cancel(fmt.Errorf("the server was silent for %v", j.Stall)) })
	defer silent.Stop()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, addr, nil)
	if err != nil {
		return false, err
	}
	maps.Copy(req.Header, j.Header)
	// the digest is that of the file, so the transfer must not be compressed
	req.Header.Set("Accept-Encoding", "identity")
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "flambeau")
	}
	if offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		if tag := r.ETag + r.Date; tag != "" {
			req.Header.Set("If-Range", tag)
		}
	}
	var linked Digest
	client := *j.Client
	client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		if len(via) >= 10 {
			return &redirectError{"ten redirects"}
		}
		if via[len(via)-1].URL.Scheme == "https" && next.URL.Scheme != "https" {
			return &redirectError{"the server redirects from https to " + next.URL.Redacted()}
		}
		if d, ok := hubHeader(next.Response.Header); ok && linked.kind == none {
			linked = d
		}
		return nil
	}
	resp, err := client.Do(req)
	if err != nil {
		var redirect *redirectError
		return !errors.As(err, &redirect), err
	}
	defer resp.Body.Close()
	if d, ok := hubHeader(resp.Header); ok && linked.kind == none {
		linked = d
	}
	now := record{URL: addr, Size: -1}
	// ignore weak tags, W/"…": two files with the same weak tag may have different bytes
	if tag := resp.Header.Get("ETag"); strings.HasPrefix(tag, `"`) {
		now.ETag = tag
	} else {
		now.Date = resp.Header.Get("Last-Modified")
	}
	if j.Digest.kind == hub {
		if linked.kind == none && resp.StatusCode < 300 {
			return false, ErrNoDigest
		}
		now.Digest = linked.String()
	}
	switch resp.StatusCode {
	case http.StatusOK:
		offset, now.Size = 0, resp.ContentLength
	case http.StatusPartialContent:
		var start int64
		if start, now.Size, err = contentRange(resp.Header.Get("Content-Range")); err != nil {
			return false, err
		}
		if start != offset || now.differs(r) {
			j.discard()
			return true, errors.New("the file changed on the server while it was fetched")
		}
	case http.StatusRequestedRangeNotSatisfiable:
		j.discard()
		return offset > 0, &StatusError{Code: resp.StatusCode, Text: resp.Status}
	default:
		e := &StatusError{Code: resp.StatusCode, Text: resp.Status}
		if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 && n < 1<<20 {
			e.After = time.Duration(n) * time.Second
		}
		return e.temporary(), e
	}
	if now.Size > j.Max {
		j.discard()
		return false, fmt.Errorf("%w: %d bytes, at most %d are taken", ErrTooLarge, now.Size, j.Max)
	}
	*r = now
	flag := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if offset == 0 {
		j.discard()
		flag |= os.O_TRUNC
	}
	if err := writeRecord(j.path+".part.json", now); err != nil {
		return false, &diskError{err}
	}
	f, err := j.open(j.path+".part", flag)
	if err != nil {
		return false, &diskError{err}
	}
	done, err := j.copy(f, resp.Body, offset, now.Size, func() { silent.Reset(j.Stall) })
	var disk *diskError
	if err == nil || !errors.As(err, &disk) {
		if e := f.Sync(); e != nil {
			err = &diskError{e}
		}
	}
	if e := f.Close(); e != nil && err == nil {
		err = &diskError{e}
	}
	switch {
	case errors.As(err, &disk):
		return false, err
	case errors.Is(err, ErrTooLarge):
		j.discard()
		return false, err
	case err == nil && now.Size >= 0 && done != now.Size:
		err = io.ErrUnexpectedEOF
	}
	return true, err
}

// copy appends the body of an answer to f. The argument offset is the length of f before the call,
// and the result is the length of f after the call.
func (j *job) copy(f io.Writer, body io.Reader, offset, total int64, alive func()) (int64, error) {
	buf := make([]byte, 128<<10)
	j.report(offset, total, false)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			alive()
			if offset+int64(n) > j.Max {
				return offset, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, j.Max)
			}
			if _, err := f.Write(buf[:n]); err != nil {
				return offset, &diskError{fmt.Errorf("%w; what is there is kept, another try goes on from it", err)}
			}
			offset += int64(n)
			j.report(offset, total, false)
		}
		if err == io.EOF {
			j.report(offset, total, true)
			return offset, nil
		}
		if err != nil {
			return offset, err
		}
	}
}

// report calls Progress, but at most ten times a second. At the end of a download, the caller sets
// end, and report always calls Progress.
func (j *job) report(done, total int64, end bool) {
	if j.Progress == nil {
		return
	}
	if now := time.Now(); end || now.Sub(j.lastProgress) >= time.Second/10 {
		j.lastProgress = now
		j.Progress(done, total)
	}
}

// differs reports whether the answer to a range request belongs to another version than r. Such an
// answer may omit fields (RFC 9110, 15.3.7); differs copies these from r.
func (now *record) differs(r *record) bool {
	if now.ETag == "" {
		now.ETag = r.ETag
	}
	if now.Date == "" || now.ETag != "" {
		now.Date = r.Date
	}
	if now.Size < 0 {
		now.Size = r.Size
	}
	return now.ETag != r.ETag || now.Date != r.Date || r.Size >= 0 && now.Size != r.Size || now.Digest != r.Digest
}

// contentRange parses the header "bytes 5-9/10" or "bytes 5-9/*". It returns the start of the range
// and the length of the whole file, which is -1 if it is unknown.
func contentRange(h string) (start, total int64, err error) {
	text, ok := strings.CutPrefix(h, "bytes ")
	span, whole, ok2 := strings.Cut(text, "/")
	first, _, ok3 := strings.Cut(span, "-")
	if start, err = strconv.ParseInt(first, 10, 64); !ok || !ok2 || !ok3 || err != nil {
		return 0, 0, fmt.Errorf("the server sent the Content-Range %q", h)
	}
	if whole == "*" {
		return start, -1, nil
	}
	if total, err = strconv.ParseInt(whole, 10, 64); err != nil || total < start {
		return 0, 0, fmt.Errorf("the server sent the Content-Range %q", h)
	}
	return start, total, nil
}

// syncDir makes a rename durable. On systems that cannot sync directories it does nothing.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		d.Sync()
		d.Close()
	}
}
