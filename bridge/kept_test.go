package bridge_test

import (
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// traced says that an entry is of the service that its group is named after.
type traced struct{}

func (traced) Origin(e registry.Entry) registry.Name {
	if e.Group.Name == "untold" {
		return ""
	}
	return registry.Name(e.Group.Name)
}

func (traced) Service(scope string) bool { return scope != "service keys" }

func TestKept(t *testing.T) {
	begin := func(t *testing.T, held ...registry.Held) *story {
		t.Helper()
		s := newStory(t).bridge("b", bridge.Guard{Settle: time.Minute}).holding(held...)
		s.bridges[0].Trace = traced{}
		return s.starts()
	}
	const headless = "headless.shop.svc.cluster.local:80"
	stories(t, map[string]func(*testing.T){
		"what cannot be reported of one service keeps what it left, and nothing else": func(t *testing.T) {
			s := begin(t, mine("a", "10.0.0.1:80"), mine("a", "10.0.0.9:80"), mine("gone", "10.0.0.8:80"), mine(headless, "10.0.0.7:80"))
			s.table().Unknown(headless, errDown)
			s.has(service("a", "10.0.0.1:80")).in(time.Hour).holds("a 10.0.0.1:80", headless+" 10.0.0.7:80")
			s.reason("a", bridge.ReasonSynced, "")
			s.table().Unknown(headless, nil)
			s.in(2 * time.Minute).holds("a 10.0.0.1:80")
		},
		"what a scope covers that is no service keeps all": func(t *testing.T) {
			s := begin(t, mine("a", "10.0.0.9:80"))
			s.table().Unknown(headless, errDown)
			s.table().Unknown("service keys", errDown)
			s.has(service("a", "10.0.0.1:80")).in(time.Hour).holds("a 10.0.0.1:80", "a 10.0.0.9:80")
			s.table().Unknown("service keys", nil)
			s.in(2 * time.Minute).holds("a 10.0.0.1:80")
		},
		"a wide scope keeps what its services left": func(t *testing.T) {
			s := begin(t, mine("team-x/a", "10.0.0.9:80"), mine("team-y/a", "10.0.0.9:80"))
			s.table().Unknown("team-x/*", errDown)
			s.has(service("c", "10.0.0.1:80")).in(time.Hour).holds("c 10.0.0.1:80", "team-x/a 10.0.0.9:80")
		},
		"what does not say whose it is stays for any": func(t *testing.T) {
			s := begin(t, mine("untold", "10.0.0.9:80"), mine("other", "10.0.0.9:80"))
			s.table().Unknown(headless, errDown)
			s.has(service("c", "10.0.0.1:80")).in(time.Hour).holds("c 10.0.0.1:80", "untold 10.0.0.9:80")
		},
		"where entries do not say of which service they are, any service that is unknown keeps all": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.Guard{Settle: time.Minute}).holding(mine("a", "10.0.0.9:80"), mine("gone", "10.0.0.8:80")).starts()
			s.table().Unknown("dubbo-interface:/dubbo/providers:api.Denied:*", errDown)
			s.has(service("a", "10.0.0.1:80")).in(time.Hour).holds("a 10.0.0.1:80", "a 10.0.0.9:80", "gone 10.0.0.8:80")
			s.reason("a", bridge.ReasonKept, "bridge b cannot report dubbo-interface:/dubbo/providers:api.Denied:*: down")
			s.table().Unknown("dubbo-interface:/dubbo/providers:api.Denied:*", nil)
			s.in(2 * time.Minute).holds("a 10.0.0.1:80")
		},
		"a source that is stale keeps all": func(t *testing.T) {
			s := begin(t, mine("a", "10.0.0.9:80"), mine("other", "10.0.0.9:80"))
			s.has(service("a", "10.0.0.1:80")).table().Stale(errDown)
			s.in(time.Hour).holds("a 10.0.0.1:80", "a 10.0.0.9:80", "other 10.0.0.9:80")
		},
		"what is kept is shown with its reason, by the service beside it too": func(t *testing.T) {
			s := begin(t, mine("a", "10.0.0.9:80"), mine("a", "10.0.0.8:80"), mine("gone", "10.0.0.7:80"))
			s.table().Unknown("service keys", errDown)
			s.has(service("a", "10.0.0.1:80"), service("c", "10.0.0.1:80")).in(time.Hour)
			const why = "bridge b cannot report service keys: down"
			s.reason("a", bridge.ReasonKept, why).reason("c", bridge.ReasonSynced, "")
			st := s.status()
			if len(st.Kept) != 1 || st.Kept[0].Why != why || st.Kept[0].Entries != 3 || len(st.Kept[0].Groups) != 2 {
				t.Errorf("%+v", st.Kept)
			}
			if found := s.loop.Status().Find(nil, called("gone")); len(found.Kept) != 1 {
				t.Errorf("%+v", found)
			}
			s.table().Unknown("service keys", nil)
			s.in(2*time.Minute).reason("a", bridge.ReasonSynced, "")
			if st := s.status(); len(st.Kept) != 0 {
				t.Errorf("%+v", st.Kept)
			}
		},
	})
}
