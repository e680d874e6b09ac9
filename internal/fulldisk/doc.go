// Package fulldisk lets a test run as if the disk were full. It sets a limit of the process: the
// operating system then does not let files grow beyond a size, even in the middle of a write.
package fulldisk
