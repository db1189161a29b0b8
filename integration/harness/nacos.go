package harness

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/internal/porttest"
)

// NacosUser and NacosPassword log in at a server that was started with
// authentication.
const (
	NacosUser     = "nacos"
	NacosPassword = "nacos"
)

// NacosOptions say how a server is to be started.
type NacosOptions struct {
	Version   int           // 2 or 3
	Auth      bool          // only NacosUser may read and write
	TokenTTL  time.Duration // 0: five hours
	PushDelay time.Duration // of pushes and reads behind writes; 0: Nacos's own 500 ms
	Heap      string        // as java's -Xmx expects it; empty: 512m
}

// startNacosTime is what a server has to start on a busy machine.
const startNacosTime = 4 * time.Minute

// Nacos is a real Nacos server. Its data outlives a Kill.
type Nacos struct {
	URL  string // http://127.0.0.1:port
	GRPC string // where its clients connect

	Namespace string // of a test; empty: the public one, of a server of its own

	owner   testing.TB // which the server ends with, whichever subtest starts it
	options NacosOptions
	port    int
	dir     string
	served  bool // once; its ports are known since then
	stored  bool // its data are those of a server that served
	process *Process
}

// NacosVersions are the major versions that the tests run against.
func NacosVersions() []int { return []int{2, 3} }

// StartNacos starts a server of its own and waits until it serves.
func StartNacos(t testing.TB, o NacosOptions) *Nacos {
	t.Helper()
	n := &Nacos{owner: t, options: o, dir: t.TempDir()}
	n.choosePorts(t)
	n.Start(t)
	if o.Auth {
		n.firstUser(t)
	}
	return n
}

// choosePorts gives the server ports of its own.
func (n *Nacos) choosePorts(t testing.TB) {
	t.Helper()
	n.port = freeNacosPort(t)
	n.URL = "http://127.0.0.1:" + strconv.Itoa(n.port)
	n.GRPC = "127.0.0.1:" + strconv.Itoa(n.port+1000)
	must(t, os.MkdirAll(filepath.Join(n.dir, "conf"), 0o700))
	must(t, os.WriteFile(filepath.Join(n.dir, "conf", "application.properties"), []byte(n.properties()), 0o600))
}

// freeNacosPort returns a port whose neighbours are free too: the gRPC ports
// are 1000 and 1001 above it, the one of raft is 1000 below.
func freeNacosPort(t testing.TB) int {
	t.Helper()
	return porttest.Free(t, 1000, 1001, -1000)[0]
}

// Start starts the server once more after a Kill, with the data it had. Its
// database may not be open within the time that it gives itself, and before it
// served once another may use one of its ports; then it ends, and is started
// again.
func (n *Nacos) Start(t testing.TB) {
	t.Helper()
	const tries = 5
	for try := 1; !n.start(t); try++ {
		log := n.process.Log()
		slow, inUse := strings.Contains(log, "Login timeout exceeded"), strings.Contains(log, "Address already in use")
		if try == tries || !slow && !inUse {
			t.Fatalf("Nacos ended: %s", n.process.tail())
		}
		if !n.stored {
			n.Wipe(t) // half a database, which it would not open
		}
		if !n.served {
			n.choosePorts(t)
		}
	}
	n.served, n.stored = true, true
}

// start starts the server and reports whether it serves; false: it ended.
func (n *Nacos) start(t testing.TB) bool {
	t.Helper()
	home := installed(t, "nacos"+strconv.Itoa(n.options.Version))
	hessian, err := filepath.Glob(filepath.Join(home, "jars", "hessian-4*.jar"))
	must(t, err)
	// com.caucho:hessian has to come before com.alipay.sofa:hessian, which
	// carries older copies of its classes: without the one the server does not
	// start, without the other it never pushes.
	path := append([]string{filepath.Join(home, "classes")}, hessian...)
	path = append(path, filepath.Join(home, "jars", "*"))
	n.process = Start(n.owner, Command{
		Name: "nacos" + strconv.Itoa(n.options.Version),
		Path: "java",
		Args: []string{
			"-Xmx" + cmp.Or(n.options.Heap, "512m"), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
			"-Djava.io.tmpdir=" + n.dir, "-Duser.home=" + n.dir,
			"-Dnacos.standalone=true", "-Dnacos.home=" + n.dir, "-Dnacos.member.list=", "-Dnacos.server.ip=127.0.0.1",
			"-Dspring.config.additional-location=file:" + filepath.Join(n.dir, "conf") + "/",
			"-cp", strings.Join(path, ":"), "NacosMain",
		},
		Dir: n.dir,
	})
	Eventually(t, startNacosTime, "Nacos serves at "+n.URL, func() error {
		if !n.process.Running() {
			return nil
		}
		if !strings.Contains(n.process.Log(), "NACOS-READY") {
			return errors.New("not ready")
		}
		return listens(t, n.GRPC)
	})
	return n.process.Running()
}

// Settings are those of a bridge that connects to it.
func (n *Nacos) Settings() string {
	return fmt.Sprintf("servers: [%q], namespace: %q", n.URL, n.Namespace)
}

// Java is the address of the registry as Java Dubbo knows it.
func (n *Nacos) Java() string {
	at := "nacos://" + strings.TrimPrefix(n.URL, "http://")
	if n.Namespace != "" {
		at += "?namespace=" + n.Namespace
	}
	return at
}

// Kill ends the server at once.
func (n *Nacos) Kill() { n.process.Kill() }

// Wipe removes everything that a killed server had stored.
func (n *Nacos) Wipe(t testing.TB) {
	t.Helper()
	n.stored = false
	must(t, os.RemoveAll(filepath.Join(n.dir, "data")))
}

// Process returns the running server.
func (n *Nacos) Process() *Process { return n.process }

func (n *Nacos) properties() string {
	o := n.options
	secret := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("a secret of tests alone ", 2)))
	lines := []string{
		"server.port=" + strconv.Itoa(n.port), "nacos.server.main.port=" + strconv.Itoa(n.port),
		"server.address=127.0.0.1", "nacos.server.contextPath=/nacos",
		"server.error.include-message=ALWAYS", "server.tomcat.accesslog.enabled=false",
		"server.tomcat.basedir=file:" + filepath.Join(n.dir, "tomcat"),
		"management.metrics.export.elastic.enabled=false", "management.influx.metrics.export.enabled=false",
		"management.metrics.export.influx.enabled=false", "management.elastic.metrics.export.enabled=false",
		"spring.autoconfigure.exclude=org.springframework.boot.autoconfigure.jdbc.DataSourceAutoConfiguration," +
			"org.springframework.boot.autoconfigure.jdbc.DataSourceTransactionManagerAutoConfiguration",
		"nacos.security.ignore.urls=/,/error,/v1/auth/**,/actuator/**",
		// Its database is given ten seconds to open by default, which a busy machine does not have.
		"db.pool.config.connectionTimeout=240000", "db.pool.config.validationTimeout=120000",
		"nacos.core.auth.system.type=nacos", "nacos.k8s.sync.enabled=false",
		"nacos.core.auth.plugin.nacos.token.secret.key=" + secret,
		fmt.Sprintf("nacos.core.auth.enabled=%t", o.Auth), fmt.Sprintf("nacos.core.auth.admin.enabled=%t", o.Auth),
	}
	if n.options.Version == 2 {
		lines = append(lines, "server.servlet.contextPath=/nacos")
	}
	if o.Auth {
		lines = append(lines, "nacos.core.auth.server.identity.key=tests", "nacos.core.auth.server.identity.value=tests")
	}
	if o.TokenTTL > 0 {
		lines = append(lines, fmt.Sprintf("nacos.core.auth.plugin.nacos.token.expire.seconds=%d", int(o.TokenTTL.Seconds())))
	}
	if o.PushDelay > 0 {
		lines = append(lines, fmt.Sprintf("nacos.naming.push.pushTaskDelay=%d", o.PushDelay.Milliseconds()))
	}
	return strings.Join(lines, "\n") + "\n"
}

// firstUser makes the user that version 3 does not have from the start, and
// waits until it may log in: the server loads its roles every 15 s.
func (n *Nacos) firstUser(t testing.TB) {
	t.Helper()
	if n.options.Version == 3 {
		_ = n.post(t, "/v3/auth/user/admin", url.Values{"password": {NacosPassword}}) // refused once there is one
	}
	Eventually(t, time.Minute, "the user of Nacos may log in", func() error {
		return n.post(t, "/v1/auth/login", url.Values{"username": {NacosUser}, "password": {NacosPassword}})
	})
}

func (n *Nacos) post(t testing.TB, path string, form url.Values) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.URL+"/nacos"+path, strings.NewReader(form.Encode()))
	must(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return answered(req)
}

// Edit sets weight and metadata of an instance, and enables it, as the console
// does.
func (n *Nacos) Edit(t testing.TB, service string, in model.Instance) {
	t.Helper()
	n.edit(t, service, in, true)
}

// Disable hides an instance from consumers, as the console does.
func (n *Nacos) Disable(t testing.TB, service string, in model.Instance) {
	t.Helper()
	n.edit(t, service, in, false)
}

func (n *Nacos) edit(t testing.TB, service string, in model.Instance, enabled bool) {
	t.Helper()
	metadata, err := json.Marshal(in.Metadata)
	must(t, err)
	form := url.Values{
		"serviceName": {service}, "groupName": {"DEFAULT_GROUP"}, "clusterName": {in.ClusterName}, "ephemeral": {"true"}, "enabled": {strconv.FormatBool(enabled)},
		"ip": {in.Ip}, "port": {strconv.FormatUint(in.Port, 10)}, "weight": {strconv.FormatFloat(in.Weight, 'f', -1, 64)}, "metadata": {string(metadata)},
	}
	if n.Namespace != "" {
		form.Set("namespaceId", n.Namespace)
	}
	path := "/nacos/v1/ns/instance"
	if n.options.Version == 3 {
		path = "/nacos/v3/admin/ns/instance"
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, n.URL+path+"?"+form.Encode(), http.NoBody)
	must(t, err)
	must(t, answered(req))
}

// Protect gives a service a protection threshold, as the console does.
func (n *Nacos) Protect(t testing.TB, service string, threshold float64) {
	t.Helper()
	form := url.Values{"serviceName": {service}, "groupName": {"DEFAULT_GROUP"}, "protectThreshold": {strconv.FormatFloat(threshold, 'f', -1, 64)}}
	if n.Namespace != "" {
		form.Set("namespaceId", n.Namespace)
	}
	path := "/nacos/v1/ns/service"
	if n.options.Version == 3 {
		path = "/nacos/v3/admin/ns/service"
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, n.URL+path+"?"+form.Encode(), http.NoBody)
	must(t, err)
	must(t, answered(req))
}

// token logs NacosUser in.
func (n *Nacos) token(t testing.TB) string {
	t.Helper()
	form := url.Values{"username": {NacosUser}, "password": {NacosPassword}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.URL+"/nacos/v1/auth/login?"+form.Encode(), nil)
	must(t, err)
	_, body, err := answer(&http.Client{Timeout: httpTime}, req)
	must(t, err)
	var login struct {
		AccessToken string `json:"accessToken"`
	}
	must(t, json.Unmarshal([]byte(body), &login))
	return login.AccessToken
}

// answered returns an error where a request was not answered with 200.
func answered(req *http.Request) error {
	status, body, err := answer(&http.Client{Timeout: httpTime}, req)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", req.URL.Path, status, body)
	}
	return err
}

// NacosProxy is a proxy before both ports of a Nacos.
type NacosProxy struct {
	URL        string
	HTTP, GRPC *Proxy
}

// StartNacosProxy starts such a proxy for the length of the test.
func StartNacosProxy(t testing.TB, n *Nacos) *NacosProxy {
	t.Helper()
	port := freeNacosPort(t)
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	return &NacosProxy{
		URL:  "http://" + at(port),
		HTTP: StartProxyAt(t, at(port), strings.TrimPrefix(n.URL, "http://")),
		GRPC: StartProxyAt(t, at(port+1000), n.GRPC),
	}
}

// Both does something to both proxies.
func (p *NacosProxy) Both(do func(*Proxy)) {
	do(p.HTTP)
	do(p.GRPC)
}
