package mesh

// OneService reports whether a scope that a mesh cannot report is one service,
// by its name, and not everything that was never reported.
func OneService(scope string) bool { return scope != keysScope }
