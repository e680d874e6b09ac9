package data

import "sync"

// Unpinned makes the next ignored Pin appear in the log again.
func Unpinned() { unpinned = sync.Once{} }
