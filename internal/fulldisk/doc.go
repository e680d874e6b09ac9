// Package fulldisk lets a test run as if the disk were full. A limit of the process makes the
// operating system refuse to let files grow, even in the middle of a write.
package fulldisk
