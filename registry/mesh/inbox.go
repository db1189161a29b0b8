package mesh

import (
	"cmp"
	"errors"
	"maps"
	"sync"

	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// news is what was told since the source last looked. Of each name the newest
// counts.
type news struct {
	epoch       int
	connection  int                    // that the stream of epoch is on
	clusters    map[string]*Cluster    // nil where gone
	assignments map[string]*Assignment // nil where withdrawn
	rejected    map[string]error       // clusters; nil where that ended
	silent      map[string]error       // endpoints; nil where that ended
	told        map[string]struct{}    // endpoints that the stream reported, or was silent about
	complete    bool                   // the stream reported all clusters
	failure     error                  // why the clusters cannot be known
	mapping     *debug.Snapshot
	lost        error // why there is no stream, where that is the newest
}

var errTakenBack = errors.New("istiod took its endpoints back and still lists the cluster")

func newNews(epoch, connection int) news {
	return news{
		epoch: epoch, connection: connection, clusters: map[string]*Cluster{}, assignments: map[string]*Assignment{},
		rejected: map[string]error{}, silent: map[string]error{}, told: map[string]struct{}{},
	}
}

// inbox holds the news between the goroutines that hear of them and the one
// that acts on them. Adding never waits for that one.
type inbox struct {
	wake chan struct{}
	mu   sync.Mutex // guards news
	news news
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1), news: newNews(0, 0)} }

func (i *inbox) add(do func(n *news)) {
	i.mu.Lock()
	do(&i.news)
	i.mu.Unlock()
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// take returns the news and forgets them.
func (i *inbox) take() news {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := i.news
	i.news = newNews(n.epoch, n.connection)
	return n
}

// on notes the number of the stream that tells. What an earlier one told stays
// true until this one says otherwise, but it is no longer everything.
func (n *news) on(epoch, connection int) {
	if epoch <= n.epoch {
		return
	}
	n.epoch, n.connection, n.complete, n.failure, n.lost = epoch, connection, false, nil, nil
	clear(n.told)
}

func (i *inbox) takeClusters(e ads.Event[*Cluster]) {
	i.add(func(n *news) {
		if err := cmp.Or(e.Disconnected, e.Ended); err != nil {
			n.lost = err
			return
		}
		n.on(e.Epoch, e.Connection)
		for _, r := range e.Changed {
			n.clusters[r.Name], n.rejected[r.Name] = r.Value, nil
		}
		for _, name := range e.Confirmed {
			n.rejected[name] = nil
		}
		for _, name := range e.Removed {
			n.clusters[name], n.rejected[name] = nil, nil
		}
		maps.Copy(n.rejected, e.Invalid)
		if err := e.Unknown[ads.Wildcard]; err != nil {
			n.failure = err
		}
		if e.Complete && e.Epoch == n.epoch {
			n.complete, n.failure = true, nil
		}
	})
}

func (i *inbox) takeEndpoints(e ads.Event[*Assignment]) {
	i.add(func(n *news) {
		if err := cmp.Or(e.Disconnected, e.Ended); err != nil {
			n.lost = err
			return
		}
		n.on(e.Epoch, e.Connection)
		tell := func(name string, err error) {
			n.silent[name] = err
			if e.Epoch == n.epoch { // not a word of an earlier stream, said again
				n.told[name] = struct{}{}
			}
		}
		for _, r := range e.Changed {
			n.assignments[r.Name] = r.Value
			tell(r.Name, nil)
		}
		for _, name := range e.Confirmed {
			tell(name, nil)
		}
		for _, name := range e.Removed {
			tell(name, errTakenBack) // what is held stays until the cluster goes as well
		}
		for name, err := range e.Invalid {
			tell(name, err)
		}
		for name, err := range e.Unknown {
			tell(name, err)
		}
	})
}

func (i *inbox) takeChanges(c Changes) {
	i.add(func(n *news) {
		n.on(c.Epoch, c.Connection)
		for name := range c.Clusters {
			n.rejected[name] = nil
		}
		maps.Copy(n.clusters, c.Clusters)
		maps.Copy(n.rejected, c.Rejected)
		n.complete = n.complete || c.Complete
		if c.Mapping != nil {
			n.mapping = c.Mapping
		}
		if c.Lost != nil {
			n.lost = c.Lost
		}
	})
}
