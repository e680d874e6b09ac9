// Package fulldisk lets a test see what happens when a disk is full. A limit of the process makes
// the operating system refuse to let files grow, even in the middle of a write.
package fulldisk
