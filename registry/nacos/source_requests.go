package nacos

import (
	"sync"
	"time"
)

// requests are the requests of one connection: those that run next to the loop of a reader, and
// the services that wait for a request. Only their calls run outside of the loop.
type requests struct {
	sync.WaitGroup

	answers  chan func() // the loop calls them
	limit    int         // of requests for services
	running  int         // number of requests for services
	queue    []*watchedService
	interval time.Duration // within which a service is read again
}

func newRequests(limit, others int, interval time.Duration) *requests {
	answers := make(chan func(), limit+others) // no answer waits for the loop
	return &requests{answers: answers, limit: limit, interval: interval}
}

// start runs a call next to the loop. The loop runs the function that the call returns.
func (q *requests) start(call func() func()) {
	q.Go(func() { q.answers <- call() })
}

// drain runs the functions of all calls that have returned.
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

// enqueue queues a service to be read, or to be read again if a request is in flight.
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

// enqueueDue queues the services that are due.
func (q *requests) enqueueDue(watched map[serviceKey]*watchedService) {
	t := time.Now()
	for _, w := range watched {
		if !w.due.IsZero() && !w.due.After(t) {
			q.enqueue(w)
		}
	}
}

// next returns the next service to be read; nil if none is queued, or too many requests run.
func (q *requests) next() *watchedService {
	for q.running < q.limit && len(q.queue) > 0 {
		w := q.queue[0]
		q.queue = q.queue[1:]
		if w.queued { // otherwise it was removed meanwhile
			w.queued, w.asking = false, true
			q.running++
			return w
		}
	}
	return nil
}

// schedule schedules a read of a service. Pushes cause at most one read within lookAgain.
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
