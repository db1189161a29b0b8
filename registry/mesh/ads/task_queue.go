package ads

import "sync"

// taskQueue passes work from any goroutine to Run's, in order. Run's goroutine executes all
// queued tasks before it sends a request, so that many changes need only one request.
type taskQueue struct {
	wake chan struct{} // signals that there may be tasks

	// Guarded by mu.
	mu     sync.Mutex
	tasks  []func(*clientLoop)
	closed bool
}

func newTaskQueue() *taskQueue { return &taskQueue{wake: make(chan struct{}, 1)} }

// add queues a task and never blocks. After close it does nothing.
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

// drain executes the queued tasks, and those that they add.
func (q *taskQueue) drain(l *clientLoop) {
	for tasks := q.takeAll(); len(tasks) > 0; tasks = q.takeAll() {
		for _, task := range tasks {
			task(l)
		}
	}
}

func (q *taskQueue) takeAll() []func(*clientLoop) {
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
