package nacos

import (
	"sync"
	"time"
)

// requests are those of one connection: the ones that run beside the loop of a
// reader, and the services that wait for theirs.
type requests struct {
	sync.WaitGroup

	answers  chan func() // for the loop to call
	limit    int         // of those for services
	running  int         // for services
	queue    []*watchedService
	interval time.Duration // within which a service is read once more
}

func newRequests(limit, others int, interval time.Duration) *requests {
	return &requests{answers: make(chan func(), limit+others), limit: limit, interval: interval} // so that no answer waits for the loop
}

// start runs a call beside the loop, and the function that it returns within the
// loop.
func (q *requests) start(call func() func()) {
	q.Go(func() { q.answers <- call() })
}

func (q *requests) drain() {
	for {
		select {
		case handle := <-q.answers:
			handle()
		default:
			return
		}
	}
}

// enqueue has a service read, once more if that is in flight.
func (q *requests) enqueue(w *watchedService) {
	w.due = time.Time{}
	switch {
	case w.asking:
		w.again = true
	case !w.queued:
		w.queued = true
		q.queue = append(q.queue, w)
	}
}

func (q *requests) enqueueDue(watched map[serviceKey]*watchedService) {
	t := time.Now()
	for _, w := range watched {
		if !w.due.IsZero() && !w.due.After(t) {
			q.enqueue(w)
		}
	}
}

// next returns the next service to be read, nil if none may be now.
func (q *requests) next() *watchedService {
	for q.running < q.limit && len(q.queue) > 0 {
		w := q.queue[0]
		q.queue = q.queue[1:]
		if w.queued { // else it was forgotten meanwhile
			w.queued, w.asking = false, true
			q.running++
			return w
		}
	}
	return nil
}

// schedule has a service read at the time of a verdict. Pushes cause no more
// than one reading within lookAgain.
func (q *requests) schedule(w *watchedService, at when) {
	t := time.Now()
	due := t.Add(q.interval)
	switch at {
	case now:
		due = w.asked.Add(lookAgain)
	case shortly:
		due = t.Add(lookAgain)
	case inTurn:
	}
	switch {
	case !due.After(t):
		q.enqueue(w)
	case !w.queued && (w.due.IsZero() || due.Before(w.due)):
		w.due = due
	}
}
