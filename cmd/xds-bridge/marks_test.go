package main

import (
	"net/url"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
)

// TestRun_Marks in every format of ZooKeeper, but for the
// lists of applications, which providers share.
func TestRun_Marks(t *testing.T) {
	t.Parallel()
	const formats = "[dubbo-interface, dubbo-application, { format: spring-cloud, root: /spring }, kratos, { format: hertz, root: /hertz }, { format: kitex, root: /kitex }, plain]"
	w := newWorld(t)
	file := w.config(fileOptions{bridge: `, names: [{ host: "orders.*", service: orders }]`})
	w.file("config.yaml", strings.Replace(w.text(file), "[dubbo-interface]", formats, 1))
	do(t, "run", "--once", "-f", file).want(t, exitOK)
	var marked, shared int
	for _, p := range w.zk.Paths("/") {
		n, _ := w.zk.Get(p)
		name, err := url.QueryUnescape(p)
		switch bears := strings.Contains(name+string(n.Data), metadata.Fingerprint("shop", metadata.OwnerLen)); {
		case err != nil:
			t.Fatal(err)
		case strings.HasPrefix(p, "/xds-bridge"), len(w.zk.Children(p)) > 0: // what a bridge keeps, and parents
		case strings.HasPrefix(p, "/dubbo/mapping/"):
			shared++
		case bears:
			marked++
		default:
			t.Errorf("%s bears no mark: %s", p, n.Data)
		}
	}
	if marked != 7*2+2 || shared != 1 {
		t.Errorf("%d entries bear a mark and %d are shared, want two endpoints of each format and two documents, and one", marked, shared)
	}
}
