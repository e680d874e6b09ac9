package data

import "sync"

// Unpinned forgets that the log was told of a Pin that is ignored.
func Unpinned() { unpinned = sync.Once{} }
