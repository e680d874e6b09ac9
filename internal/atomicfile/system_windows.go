package atomicfile

// syncDir does nothing, because the file system journals renames.
func syncDir(string) error { return nil }
