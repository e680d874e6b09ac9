// Package fulldisk lets a test see what happens on a disk that is full. The system refuses to make
// files of the test's process longer than a limit, in the middle of writing one.
package fulldisk
