package debug_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// capture is an answer of a real istiod 1.31.
func capture(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// publications reads an answer to its end.
func publications(body []byte, o debug.DecodeOptions) ([]metadata.Publication, []metadata.PublicationError, error) {
	return debug.Decode(bytes.NewReader(body), o)
}

func TestCapture(t *testing.T) {
	t.Parallel()
	t.Run("adsz of a real istiod: one key, and one that has a colon too many", func(t *testing.T) {
		t.Parallel()
		got, skipped, err := publications(capture(t, "adsz.json"), debug.DecodeOptions{})
		if err != nil || len(got) != 2 || len(skipped) != 1 {
			t.Fatalf("got %v, %v, %v", got, skipped, err)
		}
		address := got[0].Hosts[mustKey(t, "providers:org.apache.X:1.0:g")]
		if got[0].Client != "client-1.default-23" || address.String() != "svc.ns.svc.cluster.local:20000" {
			t.Errorf("got %+v", got[0])
		}
		if skipped[0].Client != "sel-1.shop-22" || !strings.Contains(skipped[0].Text, "org.apache.Y") {
			t.Errorf("skipped %+v, want the key of sel-1.shop-22", skipped[0])
		}
	})
	t.Run("adsz over xDS of a real istiod without publications", func(t *testing.T) {
		t.Parallel()
		got, skipped, err := publications(capture(t, "adsz-xds.json"), debug.DecodeOptions{})
		if err != nil || len(got)+len(skipped) != 0 {
			t.Errorf("got %v, %v, %v", got, skipped, err)
		}
	})
	t.Run("a real istiod through the whole reader", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			_, istiods, o := mesh(t, "127.0.0.1")
			istiods[0].misbehave(func(w http.ResponseWriter, r *http.Request) bool {
				_, _ = w.Write(capture(t, strings.TrimPrefix(r.URL.Path, "/debug/")+".json"))
				return true
			})
			w := watch(t, o)
			in(time.Minute)
			expect(t, w, "providers:org.apache.X:1.0:g svc.ns.svc.cluster.local:20000")
		})
	})
}

func TestOddClients(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		clients string
		n       int
		unread  bool
		skipped int
	}{
		"no metadata":             {`{"connectionId":"a-1"}`, 0, false, 0},
		"no label":                {`{"connectionId":"a-1","metadata":{"LABELS":{"app":"a"}}}`, 0, false, 0},
		"the label is null":       {`{"connectionId":"a-1","metadata":{"LABELS":{"DUBBO_GO":null}}}`, 1, true, 1},
		"the label in lower case": {`{"connectionId":"a-1","metadata":{"LABELS":{"dubbo_go":"{}"}}}`, 0, false, 0},
		"metadata that is a text": {`{"connectionId":"a-1","metadata":"x"}`, 1, true, 1},
		"no id":                   {`{"metadata":{"LABELS":{"DUBBO_GO":"{}"}}}`, 0, false, 1},
		"an id that is a number":  {`{"connectionId":7}`, 0, false, 1},
		"a client that is a text": {`"x"`, 0, false, 1},
		"an invalid time":         {`{"connectionId":"a-1","connectedAt":"yesterday","metadata":{"LABELS":{"DUBBO_GO":"{}"}}}`, 1, false, 0},
		"a time that is a number": {`{"connectionId":"a-1","connectedAt":7,"metadata":{"LABELS":{"DUBBO_GO":"{}"}}}`, 1, true, 1},
		"an id with an escape":    {`{"connectionId":"\u001b[2J-1","metadata":"x"}`, 1, true, 1},
		"unknown fields, too":     {`{"connectionId":"a-1","new":{"deep":[1,{"x":[]}]},"metadata":{"LABELS":{"DUBBO_GO":"{}"}}}`, 1, false, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := `{"extra":[1,2,{"x":"y"}],"totalClients":1,"clients":[` + c.clients + `]}`
			got, skipped, err := publications([]byte(body), debug.DecodeOptions{})
			if err != nil || len(got) != c.n || len(skipped) != c.skipped || len(got) > 0 && got[0].Unread != c.unread {
				t.Errorf("got %+v, %+v, %v", got, skipped, err)
			}
		})
	}
}

// manyClients is an adsz answer with n clients of about 3 kB each, as sidecars
// are: most of it are names of watched resources.
func manyClients(n int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"totalClients":%d,"clients":[`, n)
	watched := strings.TrimSuffix(strings.Repeat(`"outbound|20000||some-service.shop.svc.cluster.local",`, 45), ",")
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"connectionId":"app-%d.shop-%d","connectedAt":"2026-11-21T03:52:09.06Z","address":"10.0.0.1:1",`+
			`"labels":{"app":"x"},"metadata":{"LABELS":{"DUBBO_GO":"{\"providers:org.shop.Service%d:1.0:g\":\"app-%d.shop.svc.cluster.local:20000\",`+
			`\"providers:grpc.reflection.v1alpha.ServerReflection::\":\"app-%d.shop.svc.cluster.local:20000\"}","app":"x"},"CLUSTER_ID":"Kubernetes"},`+
			`"locality":{},"watches":{"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment":[%s]}}`, i, i, i/10, i/10, i/10, watched)
	}
	b.WriteString("]}")
	return b.Bytes()
}

// The sum of all allocations exceeds the memory in use at any time. A fifth of
// the 10,000 clients may use a fifth of the 100 MB; the benchmark has them all.
func TestMemory(t *testing.T) {
	body := manyClients(2_000)
	if len(body) < 4<<20 {
		t.Fatalf("a response of %d bytes, want 4 MiB at least", len(body))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, skipped, err := publications(body, debug.DecodeOptions{})
	runtime.ReadMemStats(&after)
	if err != nil || len(got) != 2_000 || len(skipped) > 0 {
		t.Fatalf("%d clients, %v, %v", len(got), skipped, err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 20_000_000 {
		t.Errorf("2,000 clients in %d MB allocate %d MB, want at most 20", len(body)>>20, used>>20)
	}
}

func BenchmarkDecode10kClients(b *testing.B) {
	body := manyClients(10_000)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := publications(body, debug.DecodeOptions{MaxBytes: 64 << 20}); err != nil {
			b.Fatal(err)
		}
	}
}

// Any response: an error, or as many clients as it reports; and what is
// cut off is never treated as the whole.
func FuzzDecode(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte, cut int) {
		got, skipped, err := publications(body, debug.DecodeOptions{MaxBytes: 1 << 16})
		if err != nil && strings.ContainsFunc((&debug.Error{Cause: debug.NotAnswer, Where: "x", Err: err}).Error(), func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("error %q, want printable text", err)
		}
		if err != nil && len(got)+len(skipped) > 0 {
			t.Errorf("an error and %d clients, want none", len(got))
		}
		for _, problem := range skipped {
			if strings.ContainsFunc(problem.Error(), func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("error %q, want printable text", problem.Error())
			}
		}
		whole := bytes.TrimRight(body, " \t\r\n")
		if err != nil || cut < 0 || cut >= len(whole) {
			return
		}
		if less, _, err := publications(whole[:cut], debug.DecodeOptions{}); err == nil {
			t.Errorf("cut at %d of %d bytes: %v, want an error", cut, len(whole), less)
		}
	})
}
