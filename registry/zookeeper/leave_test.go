package zookeeper_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// left is an entry whose owner is about to delete it.
func left(e registry.Entry) registry.Entry {
	e.Value += "x"
	return e
}

// replacement is what the planner makes of a key that another owner leaves.
func replacement(held registry.Stored, next registry.Entry) registry.Change {
	held.Entry = next
	return registry.Change{Group: next.Group, Put: []registry.Write{{New: next, Old: &held}}, Want: []registry.Entry{next}}
}

// TestLeave has another owner say that it is about to delete the entry of a key that we
// claim.
func TestLeave(t *testing.T) {
	for name, l := range map[string]layout{
		"overlapping": {replaces: metadata.Overlapping}, "in place": {data: true}, "recreated": {data: true, replaces: metadata.Recreated},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := serve(t)
				writes := func(owner string) *zookeeper.Target {
					c := dial(t, server)
					t.Cleanup(c.Close)
					return target(t, c, func(o *zookeeper.TargetOptions) { o.Owner, o.Layouts = owner, []zookeeper.Layout{l} })
				}
				other, our := writes("them"), writes(owner)
				write(t, other, creation(theirs(0, 0, 0)))
				if held := watch(t, our, groupN(0)); len(held) != 1 || held[0].Leaving {
					t.Fatalf("Read = %+v, want one that stays", held)
				}
				old := read(t, other, groupN(0))[0]
				write(t, other, registry.Change{
					Group: groupN(0), Put: []registry.Write{{New: left(theirs(0, 0, 0)), Old: &old, KeepOld: l.replaces == metadata.Overlapping}},
					Want: []registry.Entry{left(theirs(0, 0, 0))},
				})
				time.Sleep(time.Second)
				if groups := our.Changes(); !slices.Equal(groups, []registry.Group{groupN(0)}) {
					t.Fatalf("Changes() = %v, want the group that the other leaves", groups)
				}
				held := watch(t, our, groupN(0))
				if slices.ContainsFunc(held, func(h registry.Stored) bool { return !h.Leaving }) {
					t.Errorf("Read = %+v, want all of the other to be leaving", held)
				}
				if own := read(t, other, groupN(0)); slices.ContainsFunc(own, func(h registry.Stored) bool { return h.Leaving }) {
					t.Errorf("Read by the other = %+v, want entries of its own", own)
				}
				i := slices.IndexFunc(held, func(h registry.Stored) bool { return h.Key == ours(0, 0, 0).Key })
				change := replacement(held[i], ours(0, 0, 1))
				write(t, our, change)
				names := strings.Join(server.Children(parentN(0)), " ")
				after := slices.DeleteFunc(read(t, our, groupN(0)), func(h registry.Stored) bool { return h.Leaving })
				if len(after) != 1 || after[0].Entry != ours(0, 0, 1) {
					t.Errorf("Read = %+v of %s, want ours", after, names)
				}
				if l.data {
					if err := our.Write(t.Context(), change); !errors.Is(err, registry.ErrConflict) {
						t.Errorf("Write over an entry that changed its owner = %v, want ErrConflict", err)
					}
				}
				stays := held[i]
				stays.Leaving = false
				if err := our.Write(t.Context(), replacement(stays, ours(0, 0, 2))); !errors.Is(err, registry.ErrRefused) {
					t.Errorf("Write over an entry of another that stays = %v, want ErrRefused", err)
				}
			})
		})
	}
}
