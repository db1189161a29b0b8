package main

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/porttest"
)

// importConfig is a configuration that serves the ZooKeeper of the world at an
// address.
func (w *world) importConfig(listen, imports string) string {
	return w.file("listen.yaml", fmt.Sprintf(`owner: shop
registries:
  mesh: { istiod: { address: %q, import: { keys: "off" %s } } }
  zk: { zookeeper: { servers: [%q], timeout: 2s } }
bridges:
  - { name: zk-to-mesh, from: zk, to: mesh, listen: %q, formats: [dubbo-interface] }
admin: { address: "unix:%s/s" }
telemetry: { address: "127.0.0.1:0" }
log: { format: json }
`, w.xds, imports, w.zkAt, listen, w.dir))
}

// pair puts a certificate into two files and returns them as settings.
func (w *world) pair() string {
	w.t.Helper()
	own, cert := certificate(w.t, "bridge.example")
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		w.t.Fatal(err)
	}
	return fmt.Sprintf("certFile: %s, keyFile: %s", w.file("listen.crt", cert),
		w.file("listen.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))))
}

func TestWarnings_ListenAddress(t *testing.T) {
	t.Parallel()
	const plaintext, everybody = "clients are served in plaintext", "everyone who reaches it can read every service"
	w := newWorld(t)
	tls := w.pair()
	for name, c := range map[string]struct {
		listen, imports string
		warnings        []string
	}{
		"to everybody, in plaintext":     {":0", "", []string{plaintext, "mesh.istiod.import.tls", everybody, "import.clients.networks"}},
		"to this machine":                {"127.0.0.1:0", "", nil},
		"to networks, in plaintext":      {":0", ", clients: { networks: [10.0.0.0/8] }", []string{plaintext}},
		"to everybody, over TLS":         {":0", ", tls: { " + tls + " }", []string{everybody}},
		"to the network of all, as much": {":0", ", tls: { " + tls + " }, clients: { networks: [10.0.0.0/8, 0.0.0.0/0] }", []string{everybody}},
		"to networks, over TLS":          {":0", ", tls: { " + tls + " }, clients: { networks: [10.0.0.0/8] }", nil},
		"to data planes too":             {":0", ", dataPlanes: true", []string{plaintext, "a data plane by its bootstrap", everybody, "the networks of the clients"}},
		"to certificates":                {":0", ", tls: { " + tls + ", caFile: " + w.dir + "/listen.crt }", nil},
	} {
		t.Run(name, func(t *testing.T) {
			file := w.importConfig(c.listen, c.imports)
			r := do(t, "validate", file)
			r.want(t, exitOK, append([]string{"valid"}, c.warnings...)...)
			p := do(t, "preflight", "-f", file)
			p.want(t, exitOK, c.warnings...)
			for _, what := range []string{plaintext, everybody} {
				if shown := strings.Contains(strings.Join(c.warnings, ""), what); strings.Contains(r.err, what) != shown || strings.Contains(p.out, what) != shown {
					t.Errorf("reported that %s, or not: %s%s", what, r.err, p.out)
				}
			}
			var v []verdict
			if err := json.Unmarshal([]byte(do(t, "validate", "-o", "json", file).out), &v); err != nil || v[0].Warnings == nil ||
				(len(v[0].Warnings) > 0) != (len(c.warnings) > 0) || len(c.warnings) > 0 && v[0].Warnings[0].Line != 6 {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

func TestReload_Clients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.importConfig("127.0.0.1:0", "")
	w.start(file)
	tls := w.pair()
	w.importConfig("127.0.0.1:0", ", tls: { "+tls+" }")
	do(t, "reload", "-f", file).want(t, exitOK, "target mesh (127.0.0.1:0): connected anew")
	w.importConfig("127.0.0.1:0", ", tls: { "+tls+" }, clients: { networks: [10.0.0.0/8] }")
	do(t, "reload", "-f", file).want(t, exitOK, "target mesh (127.0.0.1:0): connected anew")
	w.file("listen.key", "")
	w.importConfig("127.0.0.1:0", ", tls: { "+tls+" }")
	do(t, "reload", "-f", file).want(t, exitUsage, "registries.mesh.istiod.import.tls.certFile")
}

// Who looks for the cause at configSources of an istiod that read a moment ago
// looks at the wrong place.
func TestStatus_MissingReader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.registers("api.Orders", "10.0.0.1:20001")
	listen := porttest.Address(t)
	file := w.importConfig(listen, "")
	w.start(file)
	const remedy, gone = "add this address to configSources of an istiod", "read until "
	said := func() string { return do(t, "status", "-f", file).out }
	if all := said(); strings.Count(all, remedy) != 2 || strings.Contains(all, gone) {
		t.Errorf("nobody read, and it is said %s", all)
	}
	eventually(t, "somebody read", func() bool { return len(servedAt(t, listen)) == 1 })
	eventually(t, "it reports who", func() bool { return strings.Count(said(), gone) == 2 })
	if all := said(); strings.Contains(all, remedy) || !strings.Contains(all, " and disconnected") {
		t.Error(all)
	}
}
