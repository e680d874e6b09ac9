package profile_test

import (
	"errors"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/profile"
)

// idle fails the test if a profile is running or a new one cannot start.
func idle(t *testing.T) {
	t.Helper()
	if device.Tracing() != nil {
		t.Error("something still traces")
	}
	p, err := profile.Start(profile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
}

// TestHandlers runs handlers that fail, panic, stop the profile or step it. After a handler that
// steps, the profile must continue. After any other handler it must have ended. When a profile has
// ended, another profile must be able to start.
func TestHandlers(t *testing.T) {
	every := profile.Schedule{Active: 1}
	t.Run("error", func(t *testing.T) {
		broken := errors.New("disk full")
		p, err := profile.Start(profile.Options{Schedule: every, OnTraceReady: func(*profile.Profile) error { return broken }})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Step(); err != broken {
			t.Errorf("step: %v", err)
		}
		if err := p.Step(); !errors.Is(err, profile.ErrStopped) {
			t.Errorf("step after the error: %v", err)
		}
		idle(t)
		if err := p.Stop(); err != broken {
			t.Errorf("stop: %v", err)
		}
	})
	t.Run("panic", func(t *testing.T) {
		for _, stop := range []bool{false, true} {
			p, err := profile.Start(profile.Options{Schedule: every, OnTraceReady: func(*profile.Profile) error { panic("oops") }})
			if err != nil {
				t.Fatal(err)
			}
			func() {
				defer func() {
					if r := recover(); r != "oops" {
						t.Errorf("recovered %v", r)
					}
				}()
				if stop {
					p.Stop()
				} else {
					p.Step()
				}
			}()
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
			idle(t)
		}
	})
	t.Run("stop", func(t *testing.T) {
		p, err := profile.Start(profile.Options{Schedule: every, OnTraceReady: func(p *profile.Profile) error { return p.Stop() }})
		if err != nil {
			t.Fatal(err)
		}
		profile.Span("x")()
		if err := p.Step(); err != nil {
			t.Error(err)
		}
		if n := len(p.KeyAverages().Rows); n != 2 {
			t.Errorf("%d rows", n)
		}
		idle(t)
	})
	t.Run("step", func(t *testing.T) {
		calls := 0
		p, err := profile.Start(profile.Options{Schedule: profile.Schedule{Active: 1, Wait: 1}, OnTraceReady: func(p *profile.Profile) error {
			calls++
			// while the handler runs, the profile already counts as stopped
			if err := p.Step(); !errors.Is(err, profile.ErrStopped) {
				return err
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			if err := p.Step(); err != nil {
				t.Error(err)
			}
		}
		if err := p.Stop(); err != nil || calls == 0 {
			t.Errorf("%v after %d cycles", err, calls)
		}
		idle(t)
	})
}

// TestWrongSchedules passes invalid schedules to Start, which must refuse them. Action must return
// None for them, without a division by zero or an overflow.
func TestWrongSchedules(t *testing.T) {
	for _, s := range []profile.Schedule{
		{SkipFirst: 1}, {SkipFirstWait: true}, {Warmup: 1, Repeat: 1}, {Active: -1, Wait: 1}, {Active: 1, Wait: -1, Warmup: -1},
		{Active: math.MaxInt, Wait: math.MaxInt, Warmup: 2}, {Active: 1, Repeat: math.MaxInt},
	} {
		for _, step := range []int{0, 1, 5, math.MaxInt / 2} {
			if a := s.Action(step); a != profile.None {
				t.Errorf("%+v: step %d is %v", s, step, a)
			}
		}
		var e *profile.Error
		if _, err := profile.Start(profile.Options{Schedule: s}); !errors.As(err, &e) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	if s := profile.Action(200).String(); s != "Action(200)" {
		t.Error(s)
	}
}
