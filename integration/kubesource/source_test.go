package kubesource

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/registry/mesh/kube"
)

// TestSource_APIServer has Pods come, turn unready, terminate and go, and
// the API refuse, restart and forget.
func TestSource_APIServer(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := newCluster(t)
	c.service(t, "greeter")
	c.pods(t, ready("greeter-1", "10.1.0.1"))
	source, reader := c.byAPI(t)
	table := read(t, source)

	await(t, table, "10.1.0.1:20990")
	if s := table.Get(greeter); len(s.Interfaces) != 1 || s.Interfaces[0].Name != "api.Greeter" || s.Endpoints[0].Protocol != "dubbo" {
		t.Errorf("%+v", s)
	}
	c.pods(t, ready("greeter-1", "10.1.0.1"), ready("greeter-2", "10.1.0.2"))
	await(t, table, "10.1.0.1:20990 10.1.0.2:20990")
	c.pods(t, endpoint{"greeter-1", "10.1.0.1", false, false, false}, ready("greeter-2", "10.1.0.2"))
	await(t, table, "10.1.0.2:20990")
	c.pods(t, ready("greeter-1", "10.1.0.1"), endpoint{"greeter-2", "10.1.0.2", false, true, true})
	await(t, table, "10.1.0.1:20990")

	t.Run("a right that is removed is named, and nothing is forgotten", func(t *testing.T) {
		c.Grant(t, "istio-system", account, "", strings.Replace(rules, "endpointslices", "nothing", 1))
		source.Recheck()
		harness.Eventually(t, soon, "the missing right is reported", func() error {
			const want = "allow get, list and watch of endpointslices.discovery.k8s.io in all namespaces"
			if err := table.Certainty().Stale; err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("stale: %w", err)
			}
			return nil
		})
		for _, f := range reader.Status() {
			if _, forbidden := errors.AsType[*kube.Forbidden](f.Err); forbidden != (f.Resource == "endpointslices.discovery.k8s.io") {
				t.Errorf("%s: %v", f.Resource, f.Err)
			}
		}
		if got := offered(table, greeter); got != "10.1.0.1:20990" {
			t.Errorf("it is at %q", got)
		}
		c.Grant(t, "istio-system", account, "", rules)
		await(t, table, "10.1.0.1:20990")
	})
	t.Run("what happens while the server is away is found", func(t *testing.T) {
		c.Kill()
		harness.Eventually(t, soon, "the outage is reported", func() error {
			if table.Certainty().Stale == nil {
				return errors.New("not stale")
			}
			return nil
		})
		c.Start(t)
		c.pods(t, ready("greeter-2", "10.1.0.2"))
		await(t, table, "10.1.0.2:20990")
	})
	t.Run("what goes is gone", func(t *testing.T) {
		c.Drop(t, "/api/v1/namespaces/shop/services/greeter")
		await(t, table, "no service")
	})
}

// TestSource_DeniedNamespace shows a bridge that may read one of two.
func TestSource_DeniedNamespace(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := newCluster(t)
	c.Namespace(t, "closed")
	c.Grant(t, "istio-system", account, "", "[]")
	c.Grant(t, "istio-system", account, "shop", rules)
	c.service(t, "greeter")
	c.pods(t, ready("greeter-1", "10.1.0.1"))
	source, _ := c.byAPI(t, "shop", "closed")
	table := read(t, source)
	await(t, table, "10.1.0.1:20990")
	if u := fmt.Sprint(table.Certainty().Unknown); !strings.Contains(u, "in namespace closed") {
		t.Errorf("unknown: %s", u)
	}
	if status, _, err := c.Request(t, http.MethodGet, "/readyz", "", ""); err != nil || status != http.StatusOK {
		t.Errorf("status %d, %v", status, err)
	}
}
