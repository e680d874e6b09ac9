package emu

import (
	"errors"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for spec, want := range map[string]Config{
		"emulate":                        {Devices: 1, Memory: 256 << 20, SM: 90},
		"emulate:3":                      {Devices: 3, Memory: 256 << 20, SM: 90},
		"emulate:2,mem=1GiB":             {Devices: 2, Memory: 1 << 30, SM: 90},
		"emulate,mem=4TiB":               {Devices: 1, Memory: 4 << 40, SM: 90},
		"emulate,mem=6MiB,segment=64KiB": {Devices: 1, Memory: 6 << 20, SM: 90, Segment: 64 << 10},
		"emulate:2,peer=off":             {Devices: 2, Memory: 256 << 20, SM: 90, NoPeer: true},
		"emulate:2,peer=on":              {Devices: 2, Memory: 256 << 20, SM: 90},
		"emulate:2,link=10GB":            {Devices: 2, Memory: 256 << 20, SM: 90, Cost: Cost{PeerBytes: 10e9}},
		"emulate:2,link=1500kB":          {Devices: 2, Memory: 256 << 20, SM: 90, Cost: Cost{PeerBytes: 1.5e6}},
		"emulate:2,link=450GB":           {Devices: 2, Memory: 256 << 20, SM: 90},
		"emulate:2,link=1000TB":          {Devices: 2, Memory: 256 << 20, SM: 90, Cost: Cost{PeerBytes: 1e15}},
		"emulate,pageable=late":          {Devices: 1, Memory: 256 << 20, SM: 90, Pageable: PageableLate},
		"emulate,pageable=now":           {Devices: 1, Memory: 256 << 20, SM: 90, Pageable: PageableNow},
		"emulate,sm=80,seed=7":           {Devices: 1, Memory: 256 << 20, SM: 80, Seed: 7},
		"emulate,mode=meta,seed=18446744073709551615,mem=2048KiB,sm=86": {Devices: 1, Memory: 2 << 20, SM: 86, Meta: true, Seed: 1<<64 - 1},
	} {
		c, err := Parse(spec)
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		if c.String() != want.String() || c.Meta != want.Meta || c.Devices != want.Devices || c.Memory != want.Memory || c.SM != want.SM || c.Seed != want.Seed ||
			want.Cost.PeerBytes != 0 && c.Cost.PeerBytes != want.Cost.PeerBytes {
			t.Errorf("%s: got %s, want %s", spec, c, want)
		}
		if _, err := New(c); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for spec, part := range map[string]string{
		"":                            "",
		"emulated":                    "emulated",
		"off":                         "off",
		"emulate:":                    "emulate:",
		"emulate:0":                   "emulate:0",
		"emulate:65":                  "emulate:65",
		"emulate:-1":                  "emulate:-1",
		"emulate,":                    "",
		"emulate,mem":                 "mem",
		"emulate,mem=256":             "mem=256",
		"emulate,mem=256MB":           "mem=256MB",
		"emulate,mem=1KiB":            "mem=1KiB",
		"emulate,mem=8TiB":            "mem=8TiB",
		"emulate,mem=99999999999GiB":  "mem=99999999999GiB",
		"emulate,mem=-1GiB":           "mem=-1GiB",
		"emulate,sm=75":               "sm=75",
		"emulate,sm=90a":              "sm=90a",
		"emulate,mode=real":           "mode=real",
		"emulate,pageable":            "pageable",
		"emulate,seed=-1":             "seed=-1",
		"emulate,segment=1000":        "segment=1000",
		"emulate,segment=64MiB":       "segment=64MiB",
		"emulate,segment=":            "segment=",
		"emulate:2,peer=yes":          "peer=yes",
		"emulate:2,link=":             "link=",
		"emulate:2,link=10":           "link=10",
		"emulate:2,link=10GiB":        "link=10GiB",
		"emulate:2,link=0GB":          "link=0GB",
		"emulate:2,link=-1GB":         "link=-1GB",
		"emulate:2,link=1001TB":       "link=1001TB",
		"emulate,seed=1,seed=1":       "seed=1",
		"emulate:2,sm=80,speed=fast":  "speed=fast",
		"emulate:2,sm=80 ,mem=256MiB": "sm=80 ",
	} {
		c, err := Parse(spec)
		var e *SpecError
		if !errors.As(err, &e) {
			t.Errorf("%q: got %v, %v", spec, c, err)
			continue
		}
		if e.Part != part || e.Spec != spec || e.Want == "" || !strings.Contains(e.Error(), "FLAMBEAU_CUDA="+spec) {
			t.Errorf("%q: the error names %q: %v", spec, e.Part, e)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []Config{{Devices: -1}, {Devices: 65}, {Memory: 5}, {SM: 75}, {QueueDepth: -1}, {Workers: -1}, {Cost: Cost{Launch: -1}}, {Cost: Cost{CopyBytes: -1}}} {
		d, err := New(c)
		var e *SpecError
		if d != nil || !errors.As(err, &e) {
			t.Errorf("%+v: got %v, %v", c, d, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("emulate:2,mem=256MiB,sm=90,mode=meta,seed=3")
	f.Add("emulate:2,link=1500kB")
	f.Add("emulate,,")
	f.Fuzz(func(t *testing.T, spec string) {
		c, err := Parse(spec)
		if err != nil {
			var e *SpecError
			if !errors.As(err, &e) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		again, err := Parse(c.String())
		if err != nil || again.String() != c.String() {
			t.Errorf("%q became %q, which reads as %v, %v", spec, c, again, err)
		}
	})
}
