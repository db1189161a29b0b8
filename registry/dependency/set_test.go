package dependency_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/dependency"
)

var (
	errDenied = errors.New("not authenticated")
	errName   = fmt.Errorf("%w: no name of a node", registry.ErrRefused)
)

func group(name string) registry.Group { return registry.Group{Kind: "app", Name: name} }

func ref(app, revision string) metadata.Ref {
	return metadata.Ref{Group: group(app), Key: "#metadata/" + revision}
}

// A world is a set with its time and its limit of bytes.
type world struct {
	*dependency.Set
	now          time.Time
	bytes, limit int64
}

func newWorld() *world {
	w := &world{now: time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC), bytes: 7, limit: 1000} // bytes of an earlier set
	w.Set = dependency.NewSet(dependency.Options{
		Retry: registry.Backoff{Min: time.Second, Max: 30 * time.Second}, Asker: byRevision{},
		Room: func(bytes int64) bool {
			if bytes > max(w.bytes, w.limit) {
				return false
			}
			w.bytes = bytes
			return true
		},
	})
	return w
}

// byRevision has one question for each revision of a group: the text before @.
type byRevision struct{ dependency.Asker }

func (byRevision) Question(r metadata.Ref) string {
	revision, _, ok := strings.Cut(r.Key, "@")
	if !ok {
		return ""
	}
	return r.Group.Name + revision
}

func (w *world) want(app string, revisions ...string) {
	var refs []metadata.Ref
	for _, r := range revisions {
		refs = append(refs, ref(app, r))
	}
	w.Want(w.now, group(app), refs)
}

// due returns the due documents as app/revision.
func (w *world) due() []string {
	fresh, again := w.Due(w.now)
	var out []string
	for _, r := range append(fresh, again...) {
		out = append(out, r.Group.Name+"/"+strings.TrimPrefix(r.Key, "#metadata/"))
	}
	slices.Sort(out)
	return out
}

func (w *world) accept(app, revision, text string, err error) bool {
	return w.Accept(w.now, dependency.Result{Ref: ref(app, revision), Text: text, Err: err})
}

// fetches lets time pass while every fetch fails with an error, and returns the number
// of fetches.
func (w *world) fetches(d time.Duration, err error) int {
	n := 0
	for end := w.now.Add(d); ; {
		next, ok := w.Next()
		if !ok || next.After(end) {
			w.now = end
			return n
		}
		w.now = next
		fresh, again := w.Due(w.now)
		for _, r := range append(fresh, again...) {
			n++
			w.Accept(w.now, dependency.Result{Ref: r, Err: err})
		}
	}
}

func (w *world) known(t *testing.T, texts ...string) {
	t.Helper()
	var got []string
	for _, e := range w.Documents(group("shop")) {
		got = append(got, e.Value)
	}
	if !slices.Equal(got, texts) {
		t.Errorf("documents %q, want %q", got, texts)
	}
}

func (w *world) unknown(t *testing.T, app, part string) {
	t.Helper()
	err := w.Unknown(group(app))
	if part == "" && err != nil || part != "" && (err == nil || !strings.Contains(err.Error(), part)) {
		t.Errorf("%s: unknown for %v, want %q", app, err, part)
	}
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, w *world){
		"a document is unknown until it is read, and read once": func(t *testing.T, w *world) {
			w.want("shop", "r1")
			w.unknown(t, "shop", "metadata/r1 is being read")
			equal(t, w.due(), []string{"shop/r1"})
			equal(t, w.due(), []string{})
			equal(t, w.accept("shop", "r1", "text", nil), true)
			w.known(t, "text")
			w.unknown(t, "shop", "")
			w.want("shop", "r1")
			equal(t, w.fetches(time.Hour, errDenied), 0)
		},
		"a missing document stays unknown": func(t *testing.T, w *world) {
			w.want("shop", "r1")
			w.fetches(time.Minute, dependency.ErrMissing)
			for range 24 {
				w.unknown(t, "shop", "metadata/r1, tried since 2026-11-22T08:00:00Z: is not stored yet")
				if n := w.fetches(time.Hour, dependency.ErrMissing); n < 100 || n > 125 {
					t.Errorf("fetched %d times in an hour, want once in about 30 s", n)
				}
			}
			w.Expect(w.now, ref("shop", "r1"))
			equal(t, w.due(), []string{"shop/r1"})
			w.accept("shop", "r1", "late", nil)
			w.unknown(t, "shop", "")
			w.known(t, "late")
		},
		"a denied document makes its group unknown": func(t *testing.T, w *world) {
			w.want("secret", "r1")
			w.want("shop", "r1")
			w.due()
			w.accept("shop", "r1", "text", nil)
			w.accept("secret", "r1", "", errDenied)
			w.unknown(t, "secret", "not authenticated")
			w.unknown(t, "shop", "")
		},
		"a refused document is known, and not fetched again without a cause": func(t *testing.T, w *world) {
			w.want("shop", "r1", "..")
			w.due()
			w.accept("shop", "r1", "text", nil)
			equal(t, w.accept("shop", "..", "", errName), true)
			w.unknown(t, "shop", "")
			w.known(t, "text")
			if err := w.Why(ref("shop", "..")); err == nil || !strings.Contains(err.Error(), "no name of a node") {
				t.Errorf("the reason is %v", err)
			}
			equal(t, w.fetches(time.Hour, errDenied), 0)
		},
		"a refused document is fetched again after a change, a hint and a reconnect, after the longest wait": func(t *testing.T, w *world) {
			w.want("shop", "r1")
			w.due()
			w.accept("shop", "r1", "", errName)
			for _, cause := range []func(){
				func() { w.want("shop", "r1") },
				func() { w.Expect(w.now, ref("shop", "r1")) },
				func() { w.Renew(w.now) },
			} {
				for range 10 {
					cause()
				}
				w.now = w.now.Add(30*time.Second - 1)
				equal(t, w.due(), []string{})
				w.now = w.now.Add(1)
				cause()
				equal(t, w.due(), []string{"shop/r1"})
				w.want("shop", "r1")
				equal(t, w.due(), []string{})
				equal(t, w.accept("shop", "r1", "", errName), false)
				equal(t, w.Resolved(), true)
			}
			w.now = w.now.Add(time.Hour)
			w.Renew(w.now)
			equal(t, w.due(), []string{"shop/r1"})
			equal(t, w.accept("shop", "r1", "text", nil), true)
			w.known(t, "text")
		},
		"an answer is shared by all documents with the question": func(t *testing.T, w *world) {
			w.want("shop", "r1@a", "r1@b", "r2@c", "r1@d")
			equal(t, len(w.due()), 4)
			equal(t, w.accept("shop", "r1@d", "", errDenied), true)
			equal(t, w.Unread(group("shop")), true)
			equal(t, w.accept("shop", "r1@a", "one", nil), true)
			w.known(t, "one", "one", "one")
			equal(t, w.accept("shop", "r1@b", "another", nil), false)
			equal(t, w.accept("shop", "r2@c", "two", nil), true)
			equal(t, w.Unread(group("shop")), false)
			equal(t, w.Resolved(), true)
			w.want("shop", "r1@a", "r1@e")
			w.known(t, "one", "one")
			w.want("cart", "r1@x")
			equal(t, w.due(), []string{"cart/r1@x"})
			w.accept("cart", "r1@x", "of another group", nil)
			w.known(t, "one", "one")
			equal(t, w.fetches(time.Hour, errDenied), 0)
		},
		"after the document of an answer is forgotten another one is fetched for all": func(t *testing.T, w *world) {
			w.want("shop", "r1@stranger", "r1@a", "r1@b")
			w.due()
			w.accept("shop", "r1@stranger", "untrue", nil)
			w.want("shop", "r1@a", "r1@b", "r1@c")
			w.known(t, "untrue", "untrue", "untrue") // until it is known better
			w.unknown(t, "shop", "")
			equal(t, w.due(), []string{"shop/r1@a", "shop/r1@b", "shop/r1@c"})
			w.want("shop", "r1@a", "r1@b", "r1@c")
			equal(t, w.due(), []string{})
			w.Renew(w.now)
			equal(t, w.due(), []string{"shop/r1@a", "shop/r1@b", "shop/r1@c"})
			equal(t, w.accept("shop", "r1@a", "", errDenied), true)
			w.known(t, "untrue", "untrue")
			w.unknown(t, "shop", "not authenticated")
			equal(t, w.accept("shop", "r1@b", "true", nil), true)
			w.known(t, "true", "true", "true")
			w.unknown(t, "shop", "")
			equal(t, w.fetches(time.Hour, errDenied), 0)
			w.want("shop", "r1@a", "r1@c")
			w.due()
			equal(t, w.accept("shop", "r1@a", "true", nil), false)
			w.want("shop")
			equal(t, w.bytes, int64(0))
		},
		"an answer is forgotten with its last document": func(t *testing.T, w *world) {
			w.want("shop", "r1@stranger")
			w.due()
			w.accept("shop", "r1@stranger", "untrue", nil)
			w.want("shop")
			equal(t, w.bytes, int64(0))
			w.want("shop", "r1@a")
			w.known(t)
			w.unknown(t, "shop", "is being read")
			equal(t, w.due(), []string{"shop/r1@a"})
		},
		"a failure after an answer makes the document unknown, and is retried soon": func(t *testing.T, w *world) {
			w.want("shop", "r1@a", "r1@b")
			w.fetches(time.Hour, errDenied)
			w.Expect(w.now, ref("shop", "r1@a"))
			w.due()
			w.accept("shop", "r1@a", "text", nil)
			w.now = w.now.Add(time.Hour)
			w.want("shop", "r1@b")
			w.due()
			w.accept("shop", "r1@b", "", errDenied)
			w.unknown(t, "shop", "tried since "+w.now.Format(time.RFC3339))
			if next, _ := w.Next(); next.Sub(w.now) > 2*time.Second {
				t.Errorf("asked again after %v", next.Sub(w.now))
			}
		},
		"one answer is for all documents with the question": func(t *testing.T, w *world) {
			w.want("shop", "r1@a", "r1@b", "r1@c")
			w.due()
			w.accept("shop", "r1@a", "text", nil)
			w.want("shop", "r1@b", "r1@c")
			w.due()
			w.accept("shop", "r1@b", "", errDenied)
			equal(t, w.accept("shop", "r1@c", "text", nil), true)
			w.known(t, "text", "text")
		},
		"a document that does not fit stays unknown, and is retried": func(t *testing.T, w *world) {
			w.limit = 10
			equal(t, w.bytes, int64(0))
			w.want("shop", "r1@a", "r1@b", "r2")
			w.due()
			w.accept("shop", "r1@a", "sixsix", nil)
			equal(t, w.bytes, int64(6))
			equal(t, w.accept("shop", "r2", "five5", nil), true)
			w.unknown(t, "shop", "5 bytes does not fit in addition to others of 6: more than its limits allow")
			w.want("shop", "r2")
			equal(t, w.bytes, int64(0))
			w.now = w.now.Add(time.Minute)
			equal(t, w.due(), []string{"shop/r2"})
			equal(t, w.accept("shop", "r2", "five5", nil), true)
			w.unknown(t, "shop", "")
			equal(t, w.bytes, int64(5))
		},
		"an unexpected result changes nothing": func(t *testing.T, w *world) {
			w.want("shop", "r1", "r2")
			equal(t, w.accept("shop", "r1", "early", nil), false)
			equal(t, w.accept("shop", "r9", "of nothing", nil), false)
			w.known(t)
			equal(t, w.Resolved(), false)
			equal(t, w.due(), []string{"shop/r1", "shop/r2"})
			w.accept("shop", "r1", "text", nil)
			equal(t, w.accept("shop", "r1", "twice", nil), false)
			equal(t, w.accept("shop", "r1", "", errDenied), false)
			w.known(t, "text")
			equal(t, w.Resolved(), false)
			w.accept("shop", "r2", "", errDenied)
			equal(t, w.accept("shop", "r2", "", dependency.ErrMissing), false)
			w.unknown(t, "shop", "not authenticated")
			equal(t, w.Resolved(), true)
		},
		"each consecutive failure waits longer, and the first one's time is reported": func(t *testing.T, w *world) {
			w.want("shop", "r1")
			began := w.now.Format(time.RFC3339)
			for range 5 {
				w.due()
				w.accept("shop", "r1", "", errDenied)
				next, _ := w.Next()
				if wait := next.Sub(w.now); wait < time.Second || wait > 30*time.Second {
					t.Errorf("the next is due after %v", wait)
				}
				w.unknown(t, "shop", "tried since "+began)
				w.now = next
			}
			if w.fetches(time.Hour, errDenied) > 150 {
				t.Error("it waits no longer")
			}
		},
		"another failure for the same reason changes nothing": func(t *testing.T, w *world) {
			w.want("shop", "r1")
			w.due()
			equal(t, w.accept("shop", "r1", "", errDenied), true)
			w.now = w.now.Add(time.Minute)
			w.due()
			equal(t, w.accept("shop", "r1", "", errDenied), false)
			w.now = w.now.Add(time.Minute)
			w.due()
			equal(t, w.accept("shop", "r1", "", dependency.ErrMissing), true)
		},
		"a fetch is repeated at once after a hint": func(t *testing.T, w *world) {
			w.want("shop", "r1")
			w.due()
			w.Expect(w.now, ref("shop", "r1"))
			equal(t, w.due(), []string{})
			w.accept("shop", "r1", "", dependency.ErrMissing)
			equal(t, w.due(), []string{"shop/r1"})
		},
		"a document without references is forgotten": func(t *testing.T, w *world) {
			w.want("shop", "r1", "r2", "r3")
			w.due()
			w.accept("shop", "r2", "", errDenied)
			w.want("shop", "r3")
			equal(t, w.accept("shop", "r1", "text", nil), false)
			w.known(t)
			w.accept("shop", "r3", "text", nil)
			w.unknown(t, "shop", "")
			equal(t, w.Resolved(), true)
			equal(t, w.fetches(time.Hour, errDenied), 0)
			w.want("shop")
			w.Expect(w.now, ref("shop", "r3"))
			w.known(t)
			equal(t, w.Wants(ref("shop", "r3")), false)
		},
		"a new connection fetches unknown documents and keeps known ones": func(t *testing.T, w *world) {
			w.want("shop", "r1", "r2", "r3")
			w.due()
			w.accept("shop", "r1", "text", nil)
			w.accept("shop", "r2", "", errDenied)
			equal(t, w.Resolved(), false)
			w.accept("shop", "r3", "", errDenied)
			equal(t, w.Resolved(), true)
			w.Renew(w.now)
			equal(t, w.Resolved(), false)
			equal(t, w.due(), []string{"shop/r2", "shop/r3"})
			w.Renew(w.now)
			equal(t, w.due(), []string{"shop/r2", "shop/r3"})
			w.known(t, "text")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newWorld())
		})
	}
}
