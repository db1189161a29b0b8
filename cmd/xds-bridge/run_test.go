package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/admin"
	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/internal/porttest"
)

func TestReadiness(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mesh.Refuse(istiodfake.ErrNotReady)
	r := w.start(w.config(fileOptions{}))
	if code, body := r.probe(t, "/livez"); code != http.StatusOK {
		t.Errorf("/livez before the first snapshot: %d %s", code, body)
	}
	if code, body := r.probe(t, "/readyz?verbose"); code != http.StatusServiceUnavailable || !strings.Contains(body, "[-]source/mesh") {
		t.Errorf("/readyz before the first snapshot: %d %s", code, body)
	}
	do(t, "healthcheck", "--telemetry", r.telemetry).want(t, exitOK, "ok")
	do(t, "healthcheck", "--ready", "--telemetry", r.telemetry).want(t, exitFindings, "no complete snapshot yet")
	if n := w.zk.Children("/dubbo"); len(n) != 0 {
		t.Errorf("written before the source reported everything: %q", n)
	}

	w.mesh.Refuse(nil)
	eventually(t, "/readyz", func() bool { code, _ := r.probe(t, "/readyz"); return code == http.StatusOK })

	w.mesh.Refuse(istiodfake.ErrNotReady) // an outage afterwards shows in status alone
	w.mesh.Drop(nil)
	if code, body := r.probe(t, "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz in an outage: %d %s", code, body)
	}
	if code, body := r.probe(t, "/metrics"); code != http.StatusOK || !strings.Contains(body, `xdsbridge_source_synced{registry="mesh"} 1`) {
		t.Errorf("/metrics: %d\n%s", code, body)
	}
}

func TestStatusAndWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{})
	r := w.start(file)
	eventually(t, "in sync", func() bool { return do(t, "status", "-f", file).code == exitOK })

	do(t, "status", "-f", file).want(t, exitOK, "owner shop", "mesh", "SYNCED", "1 service key by debug-http", "1 synced")
	for _, flags := range [][]string{{"--all"}, {"--reason", "held,synced"}, {"--bridge", "mesh-to-zk", "--all"}, {"--reason", "synced", "-o", "json"}} {
		do(t, append([]string{"status", "-f", file}, flags...)...).want(t, exitOK, orders)
	}
	if said := do(t, "status", "-f", file, "--reason", "held", "-o", "json"); said.code != exitOK || strings.Contains(said.out, orders) {
		t.Errorf("a service of another reason is in the JSON: %s", said.out)
	}
	do(t, "status", "-f", file, "--bridge", "mesh-to-nacos").want(t, exitUsage, `"mesh-to-nacos": no such bridge is running; want one of mesh-to-zk`)
	var d admin.Document
	if err := json.Unmarshal([]byte(do(t, "status", "-o", "json", "--admin", "unix:"+w.dir+"/a").out), &d); err != nil {
		t.Fatal(err)
	}
	s := d.Loops[0].Services[0]
	if string(s.Service) != orders || s.Entries != 2 || s.LastWrite.IsZero() || d.Loops[0].Owned != 2 || d.Sources[0].Endpoints["unknown"] != 2 {
		t.Errorf("status: %+v", d)
	}
	for _, name := range []string{orders, "api.Orders", "providers:api.Orders:1.0:", "orders"} {
		do(t, "why", name, "-f", file).want(t, exitOK, "key       providers:api.Orders:1.0:", "endpoint  10.0.0.1:20880",
			"bridge mesh-to-zk, owner shop", "reason    synced", "group     dubbo-interface:/dubbo/api.Orders")
	}
	do(t, "why", "api.Nobody", "-f", file).want(t, exitFindings, "no source reports this service")
	do(t, "why", "api.Ordres", "-f", file).want(t, exitFindings, "did you mean "+orders+"?")
	if code := r.stop(); code != exitOK {
		t.Errorf("exit code %d\n%s", code, r.log)
	}
	if n := w.providers("api.Orders"); len(n) != 2 {
		t.Errorf("a stop deleted: %q are left", n)
	}
}

func TestRun_MeshChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	w.start(file)
	eventually(t, "two providers", func() bool { return len(w.providers("api.Orders")) == 2 })
	w.offer(orders, "10.0.0.2")
	eventually(t, "exactly the one that went is gone", func() bool {
		n := w.providers("api.Orders")
		return len(n) == 1 && strings.Contains(n[0], "10.0.0.2")
	})
}

func TestHolds_Decisions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.offer(orders, "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5")
	file := w.config(fileOptions{bridge: ", guard: { settle: 0s, lastEndpoint: 0s, atLeast: 1 }"})
	w.start(file)
	eventually(t, "five providers", func() bool { return len(w.providers("api.Orders")) == 5 })
	w.offer(orders, "10.0.0.1")
	eventually(t, "held", func() bool { return do(t, "status", "-f", file).code == exitHeld })
	held := len(w.providers("api.Orders"))
	if held < 4 {
		t.Errorf("%d are left", held)
	}
	var d admin.Document
	if err := json.Unmarshal([]byte(do(t, "status", "-o", "json", "-f", file).out), &d); err != nil {
		t.Fatal(err)
	}
	id := d.Loops[0].Holds[0].ID
	eventually(t, "status says so once it is ready", func() bool {
		r := do(t, "status", "-f", file)
		return r.code == exitHeld && strings.Contains(r.out, "not in sync: zk held")
	})
	do(t, "holds", "-f", file).want(t, exitHeld, "approve   xds-bridge approve -f "+file+" "+id, "deny      xds-bridge deny -f "+file+" "+id)
	do(t, "holds", "--admin", "unix:"+w.dir+"/a").want(t, exitHeld, "xds-bridge approve --admin unix:"+w.dir+"/a "+id)
	do(t, "approve", "0000", "-f", file).want(t, exitFindings, "no such hold", "xds-bridge holds")
	do(t, "approve", id[:7]+"000000000000", "-f", file).want(t, exitFindings, "bridge mesh-to-zk now has ", "deletions held in zk; see xds-bridge holds, then approve or deny "+id)
	do(t, "approve", "--bridge", "mesh-to-zk", "-f", file).want(t, exitHeld, "xds-bridge approve -f "+file+" "+id, "nothing decided; run one of the approve commands above")
	do(t, "approve", "--bridge", "other", "-f", file).want(t, exitOK, "No deletions are held.")
	do(t, "approve", "-f", file).want(t, exitUsage, "--bridge")
	do(t, "deny", id, "0000", "-f", file).want(t, exitFindings, "hold "+id+" of bridge mesh-to-zk in zk: denied", "no such hold: 0000")
	eventually(t, "status says that entries stay", func() bool {
		r := do(t, "status", "-f", file)
		return r.code == exitFindings && strings.Contains(r.out, "not in sync: zk denied") && strings.Contains(r.out, "entries kept: an operator denied it")
	})
	do(t, "holds", "-f", file).want(t, exitOK, "hold "+id, "an operator denied it")
	do(t, "approve", id, "-o", "json", "-f", file).want(t, exitOK, `"result": "approved"`)
	eventually(t, "deleted", func() bool { return len(w.providers("api.Orders")) == 1 })
}

// What was written to a registry that is away may be gone, however good it was.
func TestStatus_UnreachableTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	w.start(file)
	eventually(t, "in sync", func() bool { return do(t, "status", "-f", file).code == exitOK })
	w.zk.SetFault(func(zkfake.Request) zkfake.Fault { return zkfake.Fault{Cut: zkfake.CutBefore} })
	w.zk.DropConnections()
	eventually(t, "status says that the target is unreachable", func() bool {
		r := do(t, "status", "-f", file)
		return r.code == exitFindings && strings.Contains(r.out, "UNREACHABLE") && strings.Contains(r.out, "not in sync")
	})
	served := w.importConfig("127.0.0.1:0", "")
	w.zk.SetFault(nil)
	w.start(served)
	eventually(t, "status says that nobody reads what is served", func() bool {
		r := do(t, "status", "-f", served)
		return strings.Contains(r.out, "NO READER") && strings.Contains(r.out, "add this address to configSources of an istiod")
	})
}

func TestRun_DeniedDebugAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	w.start(file)
	eventually(t, "in sync", func() bool { return do(t, "status", "-f", file).code == exitOK })
	for code, remedy := range map[int]string{http.StatusUnauthorized: "istio-ca", http.StatusForbidden: "DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES"} {
		w.refuse(code)
		eventually(t, "status names the cause and the remedy", func() bool {
			return strings.Contains(do(t, "status", "-f", file).out, remedy)
		})
		do(t, "preflight", "-f", file).want(t, exitFindings, "× service keys", remedy)
	}
	w.offer(orders, "10.0.0.7") // the keys are kept, and followed
	eventually(t, "known keys stay in sync", func() bool {
		n := w.providers("api.Orders")
		return len(n) == 1 && strings.Contains(n[0], "10.0.0.7")
	})
	w.refuse(0)
	eventually(t, "in sync again", func() bool { return do(t, "status", "-f", file).code == exitOK })
}

func TestRun_DryRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{})
	r := w.start(file, "--dry-run")
	eventually(t, "it says what it would write", func() bool { return strings.Count(r.log.String(), `"would write"`) == 2 })
	if n := w.zk.Children("/dubbo"); len(n) != 0 {
		t.Errorf("written: %q", n)
	}
	if _, ok := w.zk.Get("/xds-bridge"); ok {
		t.Error("a dry run left a node")
	}
}

func TestRun_LogsNoSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const password, token = "hunter2secret", "eyJhbGciOiJub25lIn0.eyJhdWQiOiJpc3Rpby1jYSJ9.signature"
	file := w.config(fileOptions{
		zk: ", user: bridge, passwordFile: " + w.file("password", password+"\n"), mesh: ", tokenFile: " + w.file("token", token+"\n"),
	})
	r := w.start(file)
	eventually(t, "in sync", func() bool { return do(t, "status", "-f", file).code == exitOK })
	shown := do(t, "status", "-o", "json", "-f", file)
	checked := do(t, "preflight", "-o", "json", "-f", file)
	checked.want(t, exitOK)
	r.stop()
	all := r.log.String() + shown.out + shown.err + checked.out + checked.err
	for _, secret := range []string{password, token, "signature"} {
		if strings.Contains(all, secret) {
			t.Errorf("%s is in:\n%s", secret, all)
		}
	}
}

func TestRun_GostLogger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := do(t, "run", "--once", "-f", w.config(fileOptions{}), "--log-format", "gost", "--log-level", "error")
	r.want(t, exitOK)
	if r.err != "" {
		t.Errorf("standard error has %s", r.err)
	}
}

func TestPreflight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := do(t, "preflight", "-f", w.config(fileOptions{}))
	r.want(t, exitOK, "√ reachable", "√ version: 1.30.0-test", "√ clock", "√ xDS", "√ service keys: 1 by debug-http", "√ write: a node was created and deleted")
	for _, p := range w.zk.Paths("/") {
		if strings.Contains(p, "probe") || strings.HasPrefix(p, "/dubbo") {
			t.Errorf("preflight left %s", p)
		}
	}
}

// A root that nobody registers in is the root that was written wrong.
func TestPreflight_MissingRoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.importConfig("127.0.0.1:0", "")
	do(t, "preflight", "-f", file).want(t, exitOK, "‼ list: /dubbo does not exist, so that nothing is read there", "check root of the bridge's formats or reads")
	if err := w.zk.Put("/dubbo/api.Orders", nil); err != nil {
		t.Fatal(err)
	}
	do(t, "preflight", "-f", file).want(t, exitOK, "√ list: 1 parent znode in the roots of all formats")
}

// A server that wants authentication answers with a code that is not about rights.
func TestPreflight_AuthRequired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.zk.SetFault(func(r zkfake.Request) zkfake.Fault {
		if r.Op == zkfake.OpGetChildren2 {
			return zkfake.Fault{Code: -124}
		}
		return zkfake.Fault{}
	})
	r := do(t, "preflight", "-f", w.importConfig("127.0.0.1:0", ""))
	if !strings.Contains(r.out, "× list: list /dubbo: refused: zookeeper: SESSIONCLOSEDREQUIRESASLAUTH (-124)") || strings.Contains(r.out, "allow the bridge's user to read the root") {
		t.Errorf("%s", r.out)
	}
	if !strings.Contains(r.out, "set user and passwordFile of the registry") {
		t.Errorf("%s", r.out)
	}
}

// Rules of dubbo-admin, which do not change what a provider registered, are not followed.
func TestPreflight_Rules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.importConfig("127.0.0.1:0", "")
	rule := url.QueryEscape("override://10.0.0.1:20880/api.Orders?category=configurators&disabled=true&dynamic=false&enabled=true")
	err := errors.Join(w.zk.Put("/dubbo/api.Orders/providers", nil), w.zk.Put("/dubbo/api.Orders/configurators", nil), w.zk.Put("/dubbo/api.Users/routers", nil))
	if err != nil {
		t.Fatal(err)
	}
	if r := do(t, "preflight", "-f", file); r.code != exitOK || strings.Contains(r.out, "rules") {
		t.Errorf("%s", r.out)
	}
	if err := w.zk.Put("/dubbo/api.Orders/configurators/"+rule, nil); err != nil {
		t.Fatal(err)
	}
	do(t, "preflight", "-f", file).want(t, exitOK, "‼ rules: the bridge ignores the rules at /dubbo/api.Orders/configurators (paths with rules: 1)", "QoS command offline")
}

// What preflight says of a root that does not exist, status says too.
func TestStatus_MissingRoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.importConfig(porttest.Address(t), "")
	r := w.start(file)
	const absent = "does not exist, so that nothing is read there; check root of the bridge's formats or reads"
	eventually(t, "status says so", func() bool {
		return strings.Contains(do(t, "status", "-f", file).out, "skipped of zk: /dubbo: "+absent)
	})
	if _, text := r.probe(t, "/metrics"); !strings.Contains(text, `xdsbridge_invalid_inputs{registry="zk"} 0`) {
		t.Error("it counts as an invalid entry")
	}
	w.registers("api.Orders", "10.0.0.1:20001")
	eventually(t, "it is read once somebody registers", func() bool { return !strings.Contains(do(t, "status", "-f", file).out, absent) })
}

func TestPreflight_SourceRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := errors.Join(w.zk.Put("/dubbo/api.Orders", nil), w.zk.SetACL("/", zkfake.WorldACL(zkfake.PermRead))); err != nil {
		t.Fatal(err)
	}
	r := do(t, "preflight", "-f", w.importConfig("127.0.0.1:0", ""))
	r.want(t, exitOK, "‼ id: create /xds-bridge: refused", "let our user read and make /xds-bridge/id")
	if err := w.zk.SetACL("/", zkfake.WorldACL(zkfake.PermAll)); err != nil {
		t.Fatal(err)
	}
	if r := do(t, "preflight", "-f", w.importConfig("127.0.0.1:0", "")); r.code != exitOK || !strings.Contains(r.out, "√ id: none is kept yet") {
		t.Errorf("%s", r.out)
	}
}

func TestPurge_RunningOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	do(t, "run", "--once", "-f", file).want(t, exitOK)
	if err := w.zk.Put("/xds-bridge/shop/alive", []byte(`{"host":"another","process":7}`)); err != nil {
		t.Fatal(err)
	}
	for _, yes := range []string{"--yes=false", "--yes"} {
		r := do(t, "purge", "--owner", "shop", yes, "-f", file)
		r.want(t, exitUsage, "a bridge of owner shop still runs")
		if r.out != "" || strings.Contains(r.err, `"after":"deleted"`) {
			t.Errorf("it says %s%s", r.out, r.err)
		}
	}
	if n := w.providers("api.Orders"); len(n) != 2 {
		t.Errorf("%q are left", n)
	}
}

func TestPreflight_Token(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, tc := range map[string]struct{ token, want string }{
		"another audience":     {jwt(`{"aud":["kubernetes"]}`), `× token: its audience is ["kubernetes"], but istiod accepts only istio-ca`},
		"audience as one text": {jwt(`{"aud":"istio-ca"}`), "√ token: audience istio-ca"},
		"expired":              {jwt(`{"aud":["istio-ca"],"exp":1000}`), "× token: it expired at 1970-01-01T00:16:40Z"},
		"another namespace":    {jwt(`{"aud":["istio-ca"],"kubernetes.io":{"namespace":"shop"}}`), `its namespace is "shop", but node.namespace is "istio-system"`},
		"no token at all":      {"hunter2", "expected a service account token: not a JWT of three parts"},
	} {
		t.Run(name, func(t *testing.T) {
			r := do(t, "preflight", "-f", w.config(fileOptions{mesh: ", tokenFile: " + w.file("token", tc.token+"\n")}))
			if !strings.Contains(r.out, tc.want) || strings.Contains(r.out+r.err, tc.token) {
				t.Errorf("got %s, want %s", r.out, tc.want)
			}
		})
	}
}

func TestSignals(t *testing.T) {
	exited := make(chan int, 1)
	ctx, stop := interruptible(t.Context(), func(code int) { exited <- code })
	defer stop()
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if code := codeOf(ctx, ctx.Err()); code != 143 {
		t.Errorf("the first SIGTERM gives %d", code)
	}
	if err := self.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := <-exited; code != 130 {
		t.Errorf("a second signal, SIGINT, gives %d", code)
	}
}
