package data

import "sync"

// Unpinned makes the log mention the next ignored Pin again.
func Unpinned() { unpinned = sync.Once{} }
