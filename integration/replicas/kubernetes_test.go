package replicas

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// kubeTTL leaves an API server that shares the machine with everything else
// time to answer.
const kubeTTL = 5 * time.Second

// cluster is a world whose lease is an object of a real API server, and whose
// replicas each write through a proxy that records what they write.
type cluster struct {
	*world
	kube    *harness.Kubernetes
	tokens  *tokens
	server  *harness.ZooKeeper        // the target
	proxies []*harness.ZooKeeperProxy // before it, of the replicas, in their order
	target  *harness.Znodes
}

const (
	namespace = "bridges"
	account   = "xds-bridge"
	leases    = "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"
)

func needed() []string { return []string{"get", "create", "patch"} }

func newCluster(t *testing.T) *cluster {
	t.Helper()
	kube := harness.StartKubernetes(t)
	kube.Namespace(t, namespace)
	kube.ServiceAccount(t, namespace, account)
	kube.Allow(t, namespace, account, needed()...)
	c := &cluster{kube: kube, tokens: newTokens(t)}
	c.tokens.rotate(t, kube.Token(t, namespace, account))
	c.world = newWorld(t, "", leaseIn(kube, namespace, c.tokens.file))
	c.ttl = kubeTTL
	c.server = harness.StartZooKeeper(t)
	c.target = harness.Connect(t, c.server.Address)
	return c
}

// more starts one more replica and waits until it is ready.
func (c *cluster) more(t *testing.T) {
	t.Helper()
	p := harness.StartZooKeeperProxy(t, c.server.Address)
	c.proxies = append(c.proxies, p)
	c.registry = fmt.Sprintf("zookeeper: { servers: [%q], sessionTimeout: 10s }", p.Address)
	c.start(t, 1)
}

func leaseIn(kube *harness.Kubernetes, namespace, tokenFile string) string {
	return fmt.Sprintf("kubernetes: { server: %q, namespace: %s, name: replicas, caFile: %q, tokenFile: %q }", kube.URL, namespace, kube.CA, tokenFile)
}

// tokens is a token as the kubelet keeps it: behind a link that is replaced in
// one step.
type tokens struct {
	dir, file string
	n         int
}

func newTokens(t *testing.T) *tokens {
	t.Helper()
	dir := t.TempDir()
	return &tokens{dir: dir, file: filepath.Join(dir, "..data", "token")}
}

func (k *tokens) rotate(t *testing.T, token string) {
	t.Helper()
	k.n++
	now, link := fmt.Sprint("..", k.n), filepath.Join(k.dir, "..next")
	for _, err := range []error{
		os.Mkdir(filepath.Join(k.dir, now), 0o700),
		os.WriteFile(filepath.Join(k.dir, now, "token"), []byte(token), 0o600),
		os.Symlink(now, link),
		os.Rename(link, filepath.Join(k.dir, "..data")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// isInSync waits until the target holds what the source does, by changing the
// source: one provider more, and less again. What happened until then is judged.
func (c *cluster) isInSync(t *testing.T) {
	t.Helper()
	c.add(t, 0, 60)
	c.await(t, 0)
	c.remove(t, 0, 60)
	c.judge(t)
}

// withoutLease shows that replicas whose lease goes out of reach stop writing
// and delete nothing, that they say why, and that they continue once it is back.
func (c *cluster) withoutLease(t *testing.T, lose, back func(), why string) {
	t.Helper()
	c.add(t, 1, 50)
	c.await(t, 1)
	lose()
	for _, b := range c.replicas {
		harness.Eventually(t, soon, "nobody leads any more, and status says why", func() error {
			s, err := leadershipOf(t, b)
			if err == nil && (s.leads() || !strings.Contains(s.LastError, why)) {
				err = fmt.Errorf("it leads %t: %q, want %q", s.leads(), s.LastError, why)
			}
			return err
		})
		if !strings.Contains(b.Log(), "lease record is unreachable") {
			t.Errorf("the log of %s does not say so", b.Config)
		}
	}
	before := c.target.Tree(t, "/dubbo")
	for _, p := range c.proxies {
		p.Forget()
	}
	c.remove(t, 1, 50)
	c.add(t, 2, 50)
	harness.Stays(t, 3*time.Second, "nothing is written", func() error {
		for i, p := range c.proxies {
			if w := p.Writes("/dubbo"); len(w) > 0 {
				return fmt.Errorf("replica %d wrote %v", i, w)
			}
		}
		return harness.Same(c.target.Tree(t, "/dubbo"), before)
	})
	back()
	c.awaitReady(t)
	c.await(t, 1)
	c.await(t, 2)
	c.remove(t, 2, 50)
	c.isInSync(t)
}

// TestKubernetes shows replicas whose lease is an object of a
// real API server, with RBAC on, under the eyes of a subscriber.
func TestKubernetes(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := newCluster(t)
	c.more(t)
	c.more(t)
	c.watchZooKeeper(t, c.server)
	c.isInSync(t)
	for _, story := range []struct {
		name  string
		check func(t *testing.T)
	}{
		{"kill -9: the other one leads", func(t *testing.T) {
			leader := c.leader(t)
			b, other := c.replicas[leader], c.replicas[1-leader]
			began := time.Now()
			b.Kill()
			awaitLeader(t, other)
			t.Logf("led after %s, the ttl is %s", time.Since(began).Truncate(time.Millisecond), c.ttl)
			c.isInSync(t)
			b.Start(t)
			b.AwaitReady(t)
		}},
		{"SIGTERM: everything is handed over before it ends", func(t *testing.T) {
			leader := c.leader(t)
			b, other := c.replicas[leader], c.replicas[1-leader]
			b.Stop(t)
			s, err := leadershipOf(t, other)
			if err != nil || !s.leads() {
				t.Errorf("once it has ended the other does not lead: %+v, %v", s.Elections, err)
			}
			if !strings.Contains(b.Log(), "handed over") {
				t.Error("the log does not report it")
			}
			b.Start(t)
			b.AwaitReady(t)
		}},
		{"SIGSTOP: it loses the lease, and writes nothing after SIGCONT", func(t *testing.T) {
			leader := c.leader(t)
			b, other := c.replicas[leader], c.replicas[1-leader]
			before, err := leadershipOf(t, b)
			if err != nil {
				t.Fatal(err)
			}
			b.Signal(t, syscall.SIGSTOP)
			awaitLeader(t, other)
			for i := range interfaces { // so that it finds something to write
				c.add(t, i, 70)
				c.await(t, i)
			}
			c.proxies[leader].Forget()
			b.Signal(t, syscall.SIGCONT)
			c.awaitReady(t)
			if after, err := leadershipOf(t, b); err != nil || after.Lost <= before.Lost {
				t.Errorf("it lost the lease %d times, before %d: %v", after.Lost, before.Lost, err)
			}
			if w := c.proxies[leader].Writes("/dubbo"); len(w) > 0 {
				t.Errorf("it wrote %v", w)
			}
			for i := range interfaces {
				c.remove(t, i, 70)
			}
		}},
		{"the API server is away", func(t *testing.T) {
			c.withoutLease(t, c.kube.Kill, func() { c.kube.Start(t) }, "connection refused")
		}},
		{"403: the account has no Role", func(t *testing.T) {
			c.withoutLease(t, func() { c.kube.Forbid(t, namespace, account) }, func() { c.kube.Allow(t, namespace, account, needed()...) },
				`cannot get resource "leases" in API group "coordination.k8s.io" in the namespace "`+namespace+`"`)
		}},
		{"401: the token is not accepted", func(t *testing.T) {
			c.withoutLease(t, func() { c.tokens.rotate(t, "nonsense") }, func() { c.tokens.rotate(t, c.kube.Token(t, namespace, account)) }, "is not accepted")
		}},
		{"the token rotates on disk", func(t *testing.T) { c.rotated(t) }},
	} {
		t.Run(story.name, func(t *testing.T) {
			story.check(t)
			c.awaitReady(t)
			c.isInSync(t)
		})
	}
}

// rotated shows that a new token is used: the old one is refused by that time.
func (c *cluster) rotated(t *testing.T) {
	t.Helper()
	const next = "xds-bridge-next"
	old := c.kube.Token(t, namespace, account)
	c.kube.ServiceAccount(t, namespace, next)
	c.kube.Allow(t, namespace, next, needed()...)
	c.tokens.rotate(t, c.kube.Token(t, namespace, next))
	c.kube.Do(t, http.MethodDelete, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+account, "")
	harness.Eventually(t, soon, "the old token is refused", func() error {
		return harness.Same(c.kube.StatusFor(t, old, leases+"/replicas-to"), http.StatusUnauthorized)
	})
	c.awaitReady(t)
	c.leased(t)
}

// leased waits until no replica has anything to say of its lease: on a busy
// machine the API server is late now and then.
func (w *world) leased(t *testing.T) {
	t.Helper()
	for _, b := range w.replicas {
		harness.Eventually(t, soon, "the lease is renewed", func() error {
			s, err := leadershipOf(t, b)
			if err != nil {
				return err
			}
			return harness.Same(s.LastError, "")
		})
	}
}

// TestKubernetes_MissingNamespace shows that a replica without a
// lease writes nothing, says why, and begins once there is one.
func TestKubernetes_MissingNamespace(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := newCluster(t)
	c.tokens.rotate(t, harness.Administrator)
	c.registry, c.lease = fmt.Sprintf("zookeeper: { servers: [%q] }", c.server.Address), leaseIn(c.kube, "nowhere", c.tokens.file)
	b := c.replica(t)
	b.Start(t)
	harness.Eventually(t, soon, "readiness says why", func() error {
		if _, err := harness.Get(t, "http://"+b.Telemetry+"/readyz"); err == nil || !strings.Contains(err.Error(), `namespaces "nowhere" not found`) {
			return fmt.Errorf("/readyz: %w", err)
		}
		return nil
	})
	if nodes := c.target.Tree(t, "/dubbo"); len(nodes) > 0 {
		t.Errorf("written without a lease: %v", nodes)
	}
	c.kube.Namespace(t, "nowhere")
	b.AwaitReady(t)
	c.replicas = append(c.replicas, b)
	c.awaitReady(t)
	c.watchZooKeeper(t, c.server)
	c.judge(t)
}
