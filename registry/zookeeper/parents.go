package zookeeper

import (
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"
)

// parentCache remembers which parents were seen to exist, so that writing need
// not ask. It may be wrong: the server is the one to say.
type parentCache struct {
	mu    sync.Mutex
	known map[string]struct{}
}

// know remembers that a parent exists, and so does all above it.
func (f *parentCache) know(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil {
		f.known = make(map[string]struct{})
	}
	for ; path != "/" && path != ""; path = parentOf(path) {
		if _, ok := f.known[path]; ok {
			return
		}
		f.known[path] = struct{}{}
	}
}

// forget drops a parent and all above it.
func (f *parentCache) forget(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ; path != "/" && path != ""; path = parentOf(path) {
		delete(f.known, path)
	}
}

// missing returns what has to be made for a parent to exist, from the root
// on.
func (f *parentCache) missing(path string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		if _, ok := f.known[path[:i]]; !ok {
			out = append(out, path[:i])
		}
	}
	return out
}

// parentOf returns the path above a path; that of /a and of / is /.
func parentOf(path string) string {
	return path[:max(strings.LastIndexByte(path, '/'), 1)]
}

// makeParents returns the operations that make what is missing of the parents
// that operations need. All but the parent of the group itself is open,
// because clients make their own beside it, and nobody looks at its data.
func (w *writing) makeParents(parents []string) []any {
	var ops []any
	made := make(map[string]bool)
	for _, parent := range parents {
		for _, path := range w.target.parents.missing(parent) {
			if made[path] {
				continue
			}
			made[path] = true
			acl := aclAbove(path, w.target.acl())
			if path == w.parent {
				acl = w.target.acl()
			}
			ops = append(ops, &zk.CreateRequest{Path: path, Data: []byte{}, Acl: acl})
		}
	}
	return ops
}

// parentsOf returns the parents in which operations make nodes, the one on the
// ledger included; that of the group is always among them.
func (w *writing) parentsOf(part []unit, ledger any) []string {
	parents := []string{w.parent}
	add := func(op any) {
		if c, ok := op.(*zk.CreateRequest); ok && !slices.Contains(parents, parentOf(c.Path)) {
			parents = append(parents, parentOf(c.Path))
		}
	}
	for _, u := range part {
		for _, op := range u.ops {
			add(op)
		}
	}
	add(ledger)
	return parents
}
