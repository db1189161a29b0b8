package nacos_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
)

func two(r *readRig) {
	r.register("api.A", "10.0.0.1", "10.0.0.2")
	r.register("api.B", "10.0.0.3")
}

func TestSourceOutages(t *testing.T) {
	runAll(t, map[string]reading{
		"ten minutes without a server: everything stays and is stale, and nobody is hurried": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				reader := r.table.Reader()
				reader.Drain()
				r.down.Store(true)
				r.server.Drop()
				later(10 * time.Minute)
				r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
				if k := r.knows(); k.Stale == nil || !strings.Contains(k.Stale.Error(), "connection refused") {
					t.Errorf("stale: %v", k.Stale)
				}
				if s := r.source.State(); s.Connected || s.Attempts < 100 || s.Attempts > 160 {
					t.Errorf("%+v, want an attempt each five seconds", s)
				}
				r.register("api.A", "10.0.0.9")
				r.down.Store(false)
				later(time.Minute)
				r.tells(t, "api.A=10.0.0.9", "api.B=10.0.0.3")
				r.fresh(t)
				for name, row := range reader.Drain().Rows {
					if strings.Contains(string(name), "api.A") && !row.Found {
						t.Error("what was missed has to be found, not told")
					}
				}
			},
		},
		"a server that takes connections and answers nothing makes everything stale": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.Fail(func(nacosfake.Request) (int, string) {
					time.Sleep(time.Hour)
					return 500, "too late"
				})
				later(time.Minute)
				r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
				if k := r.knows(); k.Stale == nil {
					t.Error("not stale")
				}
				r.server.Fail(nil)
				later(2 * time.Hour)
				r.fresh(t)
			},
		},
		"a server without its data is read whole, and what is missing then is found and not told": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				reader := r.table.Reader()
				reader.Drain()
				r.restart()
				later(5 * time.Second)
				r.tells(t)
				d := reader.Drain()
				if len(d.Rows) != 2 || d.Epoch != 2 {
					t.Errorf("%d rows changed in epoch %d, want 2 and 2", len(d.Rows), d.Epoch)
				}
				for name, row := range d.Rows {
					if row.Service != nil || !row.Found {
						t.Errorf("%s: %+v, want found missing", name, row)
					}
				}
				r.register("api.A", "10.0.0.1")
				later(6 * time.Second)
				r.tells(t, "api.A=10.0.0.1")
				r.register("api.A", "10.0.0.2")
				later(time.Millisecond)
				r.tells(t, "api.A=10.0.0.2")
			},
		},
		"an empty push is believed only once an answer says the same": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				empty := model.Service{Name: named("api.B").Name, GroupName: "DEFAULT_GROUP"}
				for range 5 {
					later(time.Second)
					empty.LastRefTime = uint64(time.Now().UnixMilli())
					r.server.Send(nacosfake.Push{Service: named("api.B"), Info: empty})
					later(time.Millisecond)
					r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
				}
				later(time.Minute)
				r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.3")
				later(time.Second)
				r.register("api.B")
				later(time.Second)
				r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=")
				r.fresh(t)
			},
		},
		"what a server lost silently goes after two looks": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				reader := r.table.Reader()
				reader.Drain()
				r.server.Forget()
				later(10 * time.Second)
				r.tells(t)
				if asked := len(r.server.Requests("SubscribeServiceRequest")); asked < 2+2*2+2 || asked > 2+2*2+2+2 {
					t.Errorf("%d requests, want for both services one at first, two looks, a leave and at most a look in turn", asked)
				}
				if d := reader.Drain(); len(d.Rows) != 2 {
					t.Errorf("%d rows changed, want 2", len(d.Rows))
				}
			},
		},
		"a server that asks for another connection is read anew over it": {
			before: two,
			then: func(t *testing.T, r *readRig) {
				r.server.Reset()
				later(5 * time.Second)
				r.fresh(t)
				if k := r.knows(); k.Epoch != 2 || r.server.Connections() != 1 {
					t.Errorf("epoch %d, %d connections", k.Epoch, r.server.Connections())
				}
				r.register("api.B", "10.0.0.4")
				later(time.Millisecond)
				r.tells(t, "api.A=10.0.0.1,10.0.0.2", "api.B=10.0.0.4")
			},
		},
	})
}
