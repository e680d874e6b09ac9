package data

import "sync"

// Unpinned lets the log mention an ignored Pin once more.
func Unpinned() { unpinned = sync.Once{} }
