// Package fulldisk lets a test run as if the disk were full. It sets a limit of the process, so
// that the operating system does not let files grow, even in the middle of a write.
package fulldisk
