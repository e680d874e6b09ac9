package fetch

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

func TestRedirects(t *testing.T) {
	content := noise(1000)
	s := serve(t, content)
	hubSite := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/loop") {
			http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
			return
		}
		if r.Header.Get("Authorization") != "Bearer token" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("X-Linked-Etag", `"`+sum256(content)+`"`)
		// The client regards "localhost" as another host than "127.0.0.1".
		http.Redirect(w, r, strings.Replace(s.URL, "127.0.0.1", "localhost", 1)+"/blob", http.StatusFound)
	}))
	defer hubSite.Close()
	o := quick(t)
	o.Header = http.Header{"Authorization": {"Bearer token"}}
	fetchAndCheck(t, Source{URLs: []string{hubSite.URL + "/model"}, Digest: HubDigest()}, o, content)
	if s.requests[0].Get("Authorization") != "" {
		t.Fatal("the token went to another host")
	}
	if _, err := File(t.Context(), Source{URLs: []string{hubSite.URL + "/loop"}, Digest: HubDigest()}, o); err == nil || !strings.Contains(err.Error(), "ten redirects") {
		t.Fatal(err)
	}
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, s.URL+"/blob", http.StatusFound)
	}))
	defer secure.Close()
	o.Client = secure.Client()
	if _, err := File(t.Context(), Source{URLs: []string{secure.URL + "/n"}, Digest: MD5(strings.Repeat("0", 32))}, o); err == nil || !strings.Contains(err.Error(), "from https") {
		t.Fatal(err)
	}
}

func TestBadSources(t *testing.T) {
	ok := MD5(strings.Repeat("a", 32))
	for want, src := range map[string]Source{
		"there is no address": {Digest: ok},
		"not an address":      {URLs: []string{"ftp://host/f"}, Digest: ok},
		"not a file name":     {URLs: []string{"http://host/f"}, Name: "../f", Digest: ok},
		"has no digest":       {URLs: []string{"http://host/f"}},
		"not a digest":        {URLs: []string{"http://host/f"}, Digest: SHA256("xyz")},
	} {
		_, err := File(t.Context(), src, Options{Dir: t.TempDir(), Offline: true})
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, ok := DigestInName("data-set.tar"); ok {
		t.Error("set is not a digest")
	}
	_, err := File(t.Context(), Source{URLs: []string{"http://user:secret@host/f"}, Digest: ok}, Options{Dir: t.TempDir(), Offline: true})
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	t.Setenv("FLAMBEAU_CACHE", filepath.Join("a", "b"))
	if dir, err := CacheDir("data/mnist"); err != nil || dir != filepath.Join("a", "b", "data", "mnist") {
		t.Error(dir, err)
	}
}
