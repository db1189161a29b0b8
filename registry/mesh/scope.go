package mesh

// OneService reports whether a scope that a mesh cannot tell of is one service,
// by its name, and not everything that was never told of.
func OneService(scope string) bool { return scope != keysScope }
