package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// interruptible returns a context that ends with Ctrl-C, with a request to end (SIGTERM), and when
// the terminal or the connection is gone (SIGHUP), unless nohup has said that this is to be
// ignored. A second Ctrl-C or request ends the process at once, whatever it is busy with; a second
// SIGHUP does not, as a terminal that is closed sends it from several sides.
func interruptible() (ctx context.Context, end func()) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(ctx)
	gone := make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(gone, syscall.SIGHUP)
	}
	go func() {
		select {
		case <-gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	context.AfterFunc(ctx, stop)
	return ctx, func() {
		cancel()
		stop()
		signal.Stop(gone)
	}
}

// outlivePipes keeps the process alive when nobody reads its messages any more: writing them fails
// then, which is no reason to lose a training.
func outlivePipes() { signal.Ignore(syscall.SIGPIPE) }
