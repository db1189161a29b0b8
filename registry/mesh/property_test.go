package mesh_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

var _ mesh.MappingReader = (*debug.Reader)(nil)

// TestJoin_Incremental: whatever happened in whatever order,
// the table is the pure join of what istiod and the mapping say now.
func TestJoin_Incremental(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := mesh.Naming{Subsets: seed%2 == 0, Rules: []mesh.Rule{{Host: pattern(t, "h1.*"), Interfaces: []registry.Interface{{Name: "by.rule"}}}}}
				w := &world{bed: newBed(t, func(o *mesh.Options) { o.Naming = n }), naming: n, random: rand.New(rand.NewPCG(seed, 1))}
				w.clusters, w.loads = map[string]bool{}, map[string][]string{}
				w.start()
				w.remap()
				for range 40 {
					w.step()
					w.compare()
				}
			})
		})
	}
}

// world is a mesh in which things happen at random.
type world struct {
	*bed
	naming   mesh.Naming
	random   *rand.Rand
	clusters map[string]bool
	loads    map[string][]string
	keys     []string
}

func (w *world) step() {
	host := fmt.Sprintf("h%d.ns", w.random.IntN(4))
	name := "outbound|1|" + []string{"", "v1", "v2"}[w.random.IntN(3)] + "|" + host
	switch w.random.IntN(6) {
	case 0:
		delete(w.clusters, name)
		delete(w.loads, name)
		w.remove(name)
	case 1:
		w.remap()
	case 2:
		w.istiod.Drop(nil)
		w.in(time.Minute)
	default:
		hosts := []string{}
		for i := range w.random.IntN(4) {
			hosts = append(hosts, fmt.Sprintf("10.0.0.%d", i+w.random.IntN(3)))
		}
		w.clusters[name], w.loads[name] = true, hosts
		w.serve(name, hosts...)
	}
}

func (w *world) remap() {
	w.keys = nil
	for i := range w.random.IntN(5) {
		w.keys = append(w.keys, fmt.Sprintf("providers:I%d::", i), fmt.Sprintf("h%d.ns:1", w.random.IntN(4)))
	}
	w.mapping.say(complete(mapping(w.t, w.keys...)))
}

func (w *world) compare() {
	w.t.Helper()
	v := emptyInput()
	v.Mapping = mapping(w.t, w.keys...)
	for name := range w.clusters {
		v.Clusters[name] = decodeCluster(w.t, plain(w.t), edsCluster(name))
		v.Assignments[name] = decodeAssignment(w.t, plain(w.t), loadOf(name, w.loads[name]...))
	}
	want := w.naming.Join(v)
	var text, got strings.Builder
	for _, s := range want.Services {
		text.WriteString(line(s))
	}
	rows, _ := w.table.Snapshot()
	for _, s := range want.Services {
		if rows[s.Name] != nil {
			got.WriteString(line(rows[s.Name]))
		}
	}
	if got.String() != text.String() || len(rows) != len(want.Services) {
		w.t.Fatalf("%d rows\n%s\nwant %d\n%s", len(rows), got.String(), len(want.Services), text.String())
	}
	w.expectKnown()
	skipped := w.table.Skipped()
	for k, reason := range want.Skipped {
		if skipped[k] != reason {
			w.t.Fatalf("skipped %s: %q, want %q", k, skipped[k], reason)
		}
	}
	if len(skipped) != len(want.Skipped) {
		w.t.Fatalf("skipped %v, want %v", skipped, want.Skipped)
	}
	if st := w.source.Status(); st.Requested != len(want.EDSNames) || st.Services != len(rows) || st.Pending != 0 {
		w.t.Fatalf("status %+v, needed %v", st, len(want.EDSNames))
	}
}
