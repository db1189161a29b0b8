package nacos

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nacos-group/nacos-sdk-go/v2/common/remote/rpc/rpc_request"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
)

// snapshot is what a server reported of one service, in an answer or a push.
type snapshot struct {
	stamp     uint64 // the server's clock when it said so, in ms
	instances []instance
	sum       [sha256.Size]byte // of the instances; equal where nothing changed
}

// An instance is one that is enabled, in canonical form.
type instance struct {
	key, text string
	err       error // why it is none; text is empty then
}

// read brings what a server sent into the canonical form. Answers hold enabled
// instances alone and pushes all of them, so the others are left out of both.
// Of several instances of one address, as connections that overlap publish
// them, one that may be called counts.
func (*Source) read(info *model.Service) snapshot {
	t := snapshot{stamp: info.LastRefTime}
	for _, h := range info.Hosts {
		if h.Enable {
			t.instances = append(t.instances, toInstance(h))
		}
	}
	slices.SortFunc(t.instances, func(a, b instance) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.text, b.text)) })
	sum := sha256.New()
	for _, in := range t.instances {
		sum.Write([]byte(in.key + "\n" + in.text + "\n"))
	}
	sum.Sum(t.sum[:0])
	return t
}

func toInstance(h model.Instance) instance {
	key := net.JoinHostPort(h.Ip, strconv.FormatUint(h.Port, 10))
	if h.Port > math.MaxUint16 {
		return instance{key: clip(key), err: errors.New("no such port")}
	}
	in := fromModel(h)
	in.Enabled = in.Weight > 0
	return instance{key: in.Key(), text: in.String()}
}

// subscribe asks for the instances of a service and for pushes of every
// change of them. It may be repeated.
func (s *Source) subscribe(ctx context.Context, cn *conn, k serviceKey) (snapshot, error) {
	var out services
	r := rpc_request.NewSubscribeServiceRequest(onWire(k.namespace), k.name, k.group, "", true)
	if err := cn.ask(ctx, r, &out); err != nil {
		return snapshot{}, err
	}
	if out.ServiceInfo == nil {
		return snapshot{}, errors.New("nacos SubscribeServiceRequest: the answer holds no serviceInfo")
	}
	return s.read(out.ServiceInfo), nil
}

func unsubscribe(ctx context.Context, cn *conn, k serviceKey) error {
	return cn.ask(ctx, rpc_request.NewSubscribeServiceRequest(onWire(k.namespace), k.name, k.group, "", false), &response{})
}

// names lists the services of a scope.
func names(ctx context.Context, cn *conn, s Scope) ([]string, error) {
	return listNames(s.Namespace, s.Group, func(r rpc_request.IRequest, out answer) error { return cn.ask(ctx, r, out) })
}

// listen hands the pushes of a connection on. They wait for it.
func (cn *conn) listen(deliver func(push)) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	cn.pushed = deliver
}

// deliver gives a push to whoever listens.
func (cn *conn) deliver(p push) {
	cn.mu.Lock()
	deliver := cn.pushed
	cn.mu.Unlock()
	if deliver != nil {
		deliver(p)
	}
}

// notice reads a push of instances, false where it is something else. Servers
// of both versions leave the namespace out, so only group and name are known
// of the service.
func (p push) notice() (serviceKey, *model.Service, error) {
	var body struct {
		ServiceInfo *model.Service `json:"serviceInfo"`
	}
	if err := json.Unmarshal(p.body, &body); err != nil {
		return serviceKey{}, nil, fmt.Errorf("push %s: %w", p.kind, err)
	}
	if body.ServiceInfo == nil {
		return serviceKey{}, nil, fmt.Errorf("push %s: no serviceInfo", p.kind)
	}
	name := strings.TrimPrefix(body.ServiceInfo.Name, body.ServiceInfo.GroupName+"@@")
	return serviceKey{group: body.ServiceInfo.GroupName, name: name}, body.ServiceInfo, nil
}

// An inbox gathers the pushes of one connection until its reader comes to
// them. Those of one service become one: the newest.
type inbox struct {
	ready chan struct{}

	mu     sync.Mutex
	latest map[serviceKey]notice
	count  int
}

// A notice is what pushes reported of a service.
type notice struct {
	snapshot snapshot
	mixed    bool // they came in an order that leaves the newest open
}

// maxNotices bounds an inbox. What goes over it counts as lost, which
// verifying makes up for.
const maxNotices = 1 << 17

func newInbox() *inbox {
	return &inbox{ready: make(chan struct{}, 1), latest: make(map[serviceKey]notice)}
}

// put takes a push in. Only the goroutine that receives calls it.
func (i *inbox) put(k serviceKey, t snapshot) {
	i.mu.Lock()
	old, ok := i.latest[k]
	n := notice{snapshot: t}
	switch {
	case ok && t.stamp <= old.snapshot.stamp && t.sum != old.snapshot.sum:
		n = notice{snapshot: old.snapshot, mixed: true}
	case ok:
		n.mixed = old.mixed
	}
	if ok || len(i.latest) < maxNotices {
		i.latest[k] = n
	}
	i.count++
	i.mu.Unlock()
	select {
	case i.ready <- struct{}{}:
	default:
	}
}

// take returns what came in, and how many pushes that were, and forgets it.
func (i *inbox) take() (map[serviceKey]notice, int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	latest, count := i.latest, i.count
	i.latest, i.count = make(map[serviceKey]notice), 0
	return latest, count
}
