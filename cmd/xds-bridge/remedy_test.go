package main

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
)

// A pattern that fits nothing is reported with its setting.
func TestPlan_UnmatchedPatterns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: `, select: { include: ["orders.*", "odrers.*"], exclude: ["x.*"] }, names: [{ host: "y.*", interface: api.Y }]`})
	r := do(t, "plan", "-f", file)
	r.want(t, exitFindings, `bridges[0].select.include[1]: "odrers.*" fits no service of mesh`, `bridges[0].select.exclude[0]: "x.*" fits no`, `bridges[0].names[0].host: "y.*" fits no`)
	if strings.Contains(r.out, "include[0]") {
		t.Error(r.out)
	}
}

// A pattern that fits a host without a service key is right: its key is missing.
func TestPlan_MissingKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.offer(greeter, "10.0.0.7")
	for name, tt := range map[string]struct {
		setting string
		code    int
	}{
		"select.include[0]": {`, select: { include: [greeter.*] }`, exitOK},
		"select.exclude[0]": {`, select: { exclude: ["greeter.shop.svc.cluster.local:20000"] }`, exitFindings},
	} {
		do(t, "plan", "-f", w.config(fileOptions{bridge: tt.setting})).want(t, tt.code,
			"bridges[0]."+name+": ", "fits only hosts that are left out, such as "+greeter+": no service key is published for it", "bridges[].names")
	}
}

// What a source cannot report stays, and no guard has to do with it.
func TestPlan_HeldAndUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{})
	do(t, "run", "--once", "-f", file).want(t, exitOK)
	w.since = time.Now() // an istiod that came up: keys may be missing whose clients have not come back
	w.publish(nil)
	do(t, "plan", "-f", file).want(t, exitFindings, "kept for now: unknown: ", "0 held by the guard, 2 kept for the reasons shown, 0 in conflict")
}

// A namespace that does not exist is an error, where the servers say so.
func TestPreflight_MissingNamespace(t *testing.T) {
	t.Parallel()
	server := nacosfake.NewServer()
	server.Namespaces = map[string]string{"": "public", "5f3c": "Production"}
	w := serveNacos(t, server)
	for _, conf := range []func(string) string{w.conf, w.source} {
		do(t, "preflight", "-f", conf(", namespace: Production")).want(t, exitFindings,
			`× list`, `the namespace does not exist: "Production" is the name of the namespace with the id "5f3c"`, "set nacos.namespace to the id of the namespace")
		do(t, "preflight", "-f", conf(", namespace: Test")).want(t, exitFindings, `× list`, `the namespace does not exist: "Test"`)
		do(t, "preflight", "-f", conf(", namespace: 5f3c")).want(t, exitOK)
		do(t, "preflight", "-f", conf("")).want(t, exitOK)
	}
}

// A login that fails without a denial says nothing of the password, but for what
// Nacos 3 answers to a wrong one.
func TestPreflight_DeniedPassword(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "Handle API Compatibility failed, please see log for detail.", http.StatusInternalServerError)
	}))
	t.Cleanup(broken.Close)
	for name, c := range map[string]struct {
		at               func(good string) string
		password, remedy string
	}{
		"denied":           {func(good string) string { return good }, "wrong", "fix: check username and passwordFile"},
		"the gRPC port":    {above, "secret", "fix: the port does not speak HTTP"},
		"nobody listens":   {func(string) string { return "http://127.0.0.1:1" }, "secret", "fix: nothing listens at that port"},
		"version 3":        {func(string) string { return broken.URL }, "wrong", "fix: check username and passwordFile"},
		"another's server": {func(string) string { return web.URL }, "secret", "fix: check nacos.servers"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newNacosWorld(t, "nacos")
			w.at = c.at(w.at)
			for _, conf := range []func(string) string{w.conf, w.source} {
				code := exitUnreachable
				if name == "denied" {
					code = exitFindings
				}
				r := patiently(t, []string{"preflight", "-f", conf(w.login(c.password))}, code, "× login", c.remedy)
				if strings.Contains(r.out, "fix: check username") != (c.password == "wrong") {
					t.Error(r.out)
				}
			}
		})
	}
}

// above returns where a server that has its HTTP port at a URL speaks gRPC.
func above(good string) string {
	_, text, _ := strings.Cut(good, "127.0.0.1:")
	port, _ := strconv.Atoi(text)
	return "http://127.0.0.1:" + strconv.Itoa(port+1000)
}

// Nacos accepts any namespace, and shows what lies in one without a name to nobody.
func TestPreflight_EmptyNamespace(t *testing.T) {
	t.Parallel()
	w := newNacosWorld(t, "")
	do(t, "preflight", "-f", w.conf(", namespace: Production")).want(t, exitOK, "‼ list: found no service in the configured formats in namespace Production", "nacos.namespace is its id")
}
