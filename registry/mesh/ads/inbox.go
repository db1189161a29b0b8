package ads

import "sync"

// inbox hands what other goroutines want done to Run's, in order and all at
// once, so that many changes become one request.
type inbox struct {
	wake chan struct{} // there may be something

	mu     sync.Mutex // guards what follows
	todo   []func(*engine)
	closed bool
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// post never blocks. After close it does nothing.
func (b *inbox) post(do func(*engine)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.todo = append(b.todo, do)
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// drain does what was posted, and what is posted meanwhile.
func (b *inbox) drain(e *engine) {
	for {
		todo := b.take()
		if len(todo) == 0 {
			return
		}
		for _, do := range todo {
			do(e)
		}
	}
}

func (b *inbox) take() []func(*engine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	todo := b.todo
	b.todo = nil
	return todo
}

func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.todo = true, nil
}
