package atomicfile

// syncDir does nothing: a rename is in the journal of the file system.
func syncDir(string) error { return nil }
