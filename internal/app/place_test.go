package app

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
)

// places is a registry with providers under several roots, and what bridges make of it.
type places struct {
	*ensembles
	directory string // of the meshes
}

func newPlaces(t *testing.T) *places {
	t.Helper()
	p := &places{newEnsembles(t), t.TempDir()}
	for root, host := range map[string]string{"/prod": "10.0.20.1", "/gray": "10.0.20.2"} {
		p.put(root, "com.example.Env", host)
		instance := fmt.Sprintf(`{"name":"e","id":"x","address":%q,"port":20880,"payload":{"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance",`+
			`"id":"x","name":"e","metadata":{"dubbo.metadata.revision":"r","dubbo.metadata.storage-type":"remote"}}}`, host)
		p.store("/services"+root+"/e/"+host+":20880", instance)
		p.store("/meta"+root+"/metadata/e/r", `{"app":"e","revision":"r","services":{"com.example.App:tri":{"name":"com.example.App","protocol":"tri","path":"com.example.App","params":{}}}}`)
	}
	p.store("/services/orders/10.0.30.1:8080", `{"name":"orders","id":"10.0.30.1:8080","address":"10.0.30.1","port":8080,`+
		`"payload":{"@class":"org.springframework.cloud.zookeeper.discovery.ZookeeperInstance","id":"orders","name":"orders","metadata":{}}}`)
	return p
}

func (p *places) store(path, data string) {
	p.t.Helper()
	if err := p.from.Put(path, []byte(data)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *places) put(root, iface, host string) {
	p.t.Helper()
	p.store(root+"/"+iface+"/providers/"+url.QueryEscape("tri://"+host+":20880/"+iface+"?interface="+iface+"&side=provider"), "")
}

// run brings the bridges of a file in sync, and returns their statuses.
func (p *places) run(bridges string) []bridge.Status {
	p.t.Helper()
	file := filepath.Join(p.t.TempDir(), "config.yaml")
	text := fmt.Sprintf(`owner: shop
registries:
  zk: { zookeeper: { servers: [%q] } }
  zk2: { zookeeper: { servers: [%q] }, timing: { retryMin: 10ms, retryMax: 100ms } }
  meshA: { kubernetes: { import: { directory: %q } } }
  meshB: { kubernetes: { import: { directory: %q } } }
bridges:
%s`, p.address[0], p.address[1], p.mesh("A"), p.mesh("B"), bridges)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	program := &Program{File: file, Env: noEnv, LogOutput: io.Discard}
	statuses, err := program.RunOnce(p.t.Context(), time.Minute)
	if err != nil {
		p.t.Fatal(err)
	}
	return statuses
}

func (p *places) mesh(name string) string {
	p.t.Helper()
	dir := filepath.Join(p.directory, name)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		p.t.Fatal(err)
	}
	return dir
}

// written returns, by place, the hosts of what stands in the targets.
func (p *places) written() map[string]string {
	p.t.Helper()
	all := make(map[string][]string)
	for _, path := range p.to.Paths("/") {
		decoded, _ := url.QueryUnescape(path)
		for _, host := range []string{"10.0.20.1", "10.0.20.2", "10.0.30.1"} {
			if strings.Contains(decoded, host) {
				root, _, _ := strings.Cut(path, "/com.")
				root, _, _ = strings.Cut(root, "/e/")
				all[root] = append(all[root], host)
			}
		}
	}
	for _, name := range []string{"A", "B"} {
		files, err := filepath.Glob(filepath.Join(p.mesh(name), "*.yaml"))
		if err != nil {
			p.t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				p.t.Fatal(err)
			}
			for _, host := range []string{"10.0.20.1", "10.0.20.2", "10.0.30.1"} {
				if strings.Contains(string(text), host) {
					all["mesh"+name] = append(all["mesh"+name], host)
				}
			}
		}
	}
	out := make(map[string]string)
	for at, hosts := range all {
		slices.Sort(hosts)
		out[at] = strings.Join(hosts, " ")
	}
	return out
}

// TestBridges_OwnPlaces shows that a bridge carries what its own file names, each into the
// place that it came from or the one configured.
func TestBridges_OwnPlaces(t *testing.T) {
	t.Parallel()
	const both = "[{ format: dubbo-interface, root: /prod }, { format: dubbo-interface, root: /gray }]"
	for name, tt := range map[string]struct {
		bridges string
		want    map[string]string
	}{
		"two roots": {
			`
  - { name: prod, from: zk, to: zk2, formats: [{ format: dubbo-interface, root: /prod }] }
  - { name: gray, from: zk, to: zk2, formats: [{ format: dubbo-interface, root: /gray }] }`,
			map[string]string{"/prod": "10.0.20.1", "/gray": "10.0.20.2"},
		},
		"two roots of one bridge": {
			`
  - { name: all, from: zk, to: zk2, formats: ` + both + ` }`,
			map[string]string{"/prod": "10.0.20.1", "/gray": "10.0.20.2"},
		},
		"into the root that is configured": {
			`
  - { name: prod, from: zk, to: zk2, reads: [{ format: dubbo-interface, root: /prod }], formats: [{ format: dubbo-interface, root: /gray }] }`,
			map[string]string{"/gray": "10.0.20.1"},
		},
		"into all that are configured": {
			`
  - { name: prod, from: zk, to: zk2, reads: [{ format: dubbo-interface, root: /gray }], formats: ` + both + ` }`,
			map[string]string{"/prod": "10.0.20.2", "/gray": "10.0.20.2"},
		},
		"two meshes": {
			`
  - { name: prod, from: zk, to: meshA, formats: [{ format: dubbo-interface, root: /prod }] }
  - { name: gray, from: zk, to: meshB, formats: [{ format: dubbo-interface, root: /gray }] }`,
			map[string]string{"meshA": "10.0.20.1", "meshB": "10.0.20.2"},
		},
		"two formats": {
			`
  - { name: dubbo, from: zk, to: meshA, formats: [{ format: dubbo-interface, root: /prod }] }
  - { name: spring, from: zk, to: meshB, formats: [spring-cloud] }`,
			map[string]string{"meshA": "10.0.20.1", "meshB": "10.0.30.1"},
		},
		"two roots of applications": {
			`
  - { name: prod, from: zk, to: meshA, formats: [{ format: dubbo-application, root: /services/prod, metadataRoot: /meta/prod }] }
  - { name: gray, from: zk, to: meshB, formats: [{ format: dubbo-application, root: /services/gray, metadataRoot: /meta/gray }] }`,
			map[string]string{"meshA": "10.0.20.1", "meshB": "10.0.20.2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlaces(t)
			statuses := p.run(tt.bridges)
			if got := p.written(); !maps.Equal(got, tt.want) {
				t.Errorf("written %v, want %v", got, tt.want)
			}
			for _, st := range statuses {
				for _, s := range st.Services {
					if s.Entries == 0 {
						t.Errorf("%s: service %s of bridge %s is %s, want only services of its own", st.Target, s.Service, s.Bridge, s.Reason)
					}
				}
			}
		})
	}
}

// TestBridges_OthersPlaces shows that what is unknown in the place of another bridge keeps
// nothing back, and that what a bridge no longer reads is deleted as any other.
func TestBridges_OthersPlaces(t *testing.T) {
	t.Parallel()
	const guard = "guard: { settle: 0s, lastEndpoint: 0s, share: 1 }"
	const two = `
  - { name: prod, from: zk, to: zk2, formats: [{ format: dubbo-interface, root: /prod }], ` + guard + ` }
  - { name: gray, from: zk, to: zk2, formats: [{ format: dubbo-interface, root: /gray }], ` + guard + ` }`
	p := newPlaces(t)
	p.put("/prod", "com.example.Other", "10.0.20.1")
	p.run(two)
	if err := p.from.SetACL("/gray", zkfake.DigestACL(zkfake.PermAll, "someone", "else")); err != nil {
		t.Fatal(err)
	}
	p.from.Delete("/prod/com.example.Other")
	p.run(two)
	if got := p.to.Children("/prod/com.example.Other/providers"); len(got) > 0 {
		t.Errorf("left in /prod: %q, want none: /gray is another bridge's", got)
	}
	if got := p.to.Children("/gray/com.example.Env/providers"); len(got) != 1 {
		t.Errorf("left in /gray: %q, want what cannot be read", got)
	}
	p.run(`
  - { name: prod, from: zk, to: zk2, reads: [{ format: dubbo-interface, root: /empty }], formats: [{ format: dubbo-interface, root: /prod }], ` + guard + ` }
  - { name: gray, from: zk, to: zk2, formats: [{ format: dubbo-interface, root: /gray }], ` + guard + ` }`)
	if got := p.to.Children("/prod/com.example.Env/providers"); len(got) > 0 {
		t.Errorf("left in /prod: %q, want none: the bridge reads another root", got)
	}
}

// TestBridges_Unwritable shows that a service which the target cannot hold keeps nothing of
// others there.
func TestBridges_Unwritable(t *testing.T) {
	t.Parallel()
	const copied = `
  - { name: copy, from: zk, to: zk2, reads: [spring-cloud], formats: [hertz], guard: { settle: 0s, lastEndpoint: 0s, share: 1 } }`
	p := newPlaces(t)
	p.store("/services/dubbo/10.0.31.1:8080", `{"name":"dubbo","id":"x","address":"10.0.31.1","port":8080}`) // the root of another format
	reasons := p.run(copied)[0].Bridges[0].Reasons
	if len(p.to.Children("/orders")) != 1 || reasons[bridge.ReasonUnwritable] != 1 {
		t.Fatalf("children of /orders = %q, reasons = %v, want one, and one that cannot be written", p.to.Children("/orders"), reasons)
	}
	p.from.Delete("/services/orders")
	p.run(copied)
	if got := p.to.Children("/orders"); len(got) > 0 {
		t.Errorf("left of orders: %q, want none", got)
	}
}
