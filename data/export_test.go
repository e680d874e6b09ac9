package data

import "sync"

// Unpinned makes the log mention an ignored Pin again.
func Unpinned() { unpinned = sync.Once{} }
