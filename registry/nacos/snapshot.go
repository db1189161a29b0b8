package nacos

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"math"
	"net"
	"slices"
	"strconv"

	"github.com/nacos-group/nacos-sdk-go/v2/model"
)

// A snapshot is the content of a service in an answer or a push.
type snapshot struct {
	stamp     uint64 // the server's clock, in ms
	instances []instance
	sum       [sha256.Size]byte // of the instances
	protected error             // why the health of some instances is unknown
}

// errProtected means that a server does not show which instances are healthy.
var errProtected = errors.New("Nacos protects this service, " + //nolint:staticcheck // a name
	"and shows all of its instances as healthy, because the share of healthy ones " +
	"is not above its protection threshold; " +
	"their entries stay, and none is added; repair or deregister them, or lower the threshold")

// An instance is an enabled instance in canonical form.
type instance struct {
	key, text string
	err       error // why it is invalid; text is empty then
}

// newSnapshot returns the enabled instances in canonical form: answers leave out the others,
// and pushes do not. Overlapping connections publish an address twice: the instance that may
// be called comes first.
func newSnapshot(info *model.Service) snapshot {
	t := snapshot{stamp: info.LastRefTime}
	if info.ReachProtectionThreshold {
		t.protected = errProtected
	}
	for _, h := range info.Hosts {
		if h.Enable {
			t.instances = append(t.instances, toInstance(h))
		}
	}
	slices.SortFunc(t.instances, func(a, b instance) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.text, b.text))
	})
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
		return instance{key: clip(key), err: errors.New("port out of range")}
	}
	in := fromModel(h)
	in.Enabled = in.Weight > 0
	return instance{key: in.Key(), text: in.String()}
}
