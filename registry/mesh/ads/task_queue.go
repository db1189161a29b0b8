package ads

import (
	"sync"
)

// taskQueue passes work from other goroutines to Run's, in order and all at once,
// so that many changes are one request.
type taskQueue struct {
	wake chan struct{} // there may be tasks

	mu     sync.Mutex // guards what follows
	tasks  []func(*clientLoop)
	closed bool
}

func newTaskQueue() *taskQueue { return &taskQueue{wake: make(chan struct{}, 1)} }

// add never blocks. After close it does nothing.
func (q *taskQueue) add(task func(*clientLoop)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.tasks = append(q.tasks, task)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *taskQueue) drain(l *clientLoop) {
	for tasks := q.remove(); len(tasks) > 0; tasks = q.remove() {
		for _, task := range tasks {
			task(l)
		}
	}
}

func (q *taskQueue) remove() []func(*clientLoop) {
	q.mu.Lock()
	defer q.mu.Unlock()
	tasks := q.tasks
	q.tasks = nil
	return tasks
}

func (q *taskQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed, q.tasks = true, nil
}
