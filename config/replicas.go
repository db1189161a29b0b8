package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	minTTL = time.Second // leaves room for a renewal that fails
	maxTTL = time.Hour
)

// Replicas says how several processes with this configuration go together.
type Replicas struct {
	Lease    Lease    `yaml:"lease" doc:"Where the replicas agree on who leads each target; without it there may be only one."`
	TTL      Duration `yaml:"ttl" default:"15s" doc:"How long a leader that is silent keeps its lease. It stops writing after two thirds of it; another leads after all of it."`
	Expected int      `yaml:"expected" default:"2" check:"count" doc:"How many replicas there should be. While there are fewer, status and the condition replica-missing say so; with 1 or 0 none is missed."`
	Identity string   `yaml:"identity" check:"name" doc:"What this replica is called; the machine's name if it is empty. A random part is added for each start."`
}

// Lease says where the replicas keep the record of each target; at most one of
// its fields is set.
type Lease struct {
	ZooKeeper  string           `yaml:"zookeeper" doc:"The name of a ZooKeeper of registries."`
	Kubernetes *KubernetesLease `yaml:"kubernetes" doc:"Lease objects of Kubernetes, one for each target."`
}

// KubernetesLease says where Lease objects are. Within a pod everything has a
// default.
type KubernetesLease struct {
	Namespace string `yaml:"namespace" doc:"Their namespace; the pod's own if it is empty."`
	Name      string `yaml:"name" doc:"What their names begin with, before a hyphen and the name of the registry; xds-bridge- and the owner if it is empty."`
	Server    string `yaml:"server" check:"url" doc:"The API server as https://host:port; the one of the pod's environment if it is empty."`
	CAFile    string `yaml:"caFile" check:"certificates" default:"/var/run/secrets/kubernetes.io/serviceaccount/ca.crt" doc:"Certificates to trust as PEM."`
	TokenFile string `yaml:"tokenFile" check:"secret" default:"/var/run/secrets/kubernetes.io/serviceaccount/token" doc:"The token to log in with; read again when it changes."`
}

// Object returns what the Lease of a target is called: by its name, or by a hash
// of that if Kubernetes does not accept it.
func (k KubernetesLease) Object(owner, target string) string {
	if !isObject(target) {
		sum := sha256.Sum256([]byte(target))
		target = hex.EncodeToString(sum[:6])
	}
	return cmp.Or(k.Name, "xds-bridge-"+strings.ToLower(owner)) + "-" + target
}

func isObject(name string) bool { return len(name) <= 253 && objectForm.MatchString(name) }

// Shared reports whether there may be several processes.
func (r Replicas) Shared() bool { return r.Lease.ZooKeeper != "" || r.Lease.Kubernetes != nil }

func (r Replicas) validate(v *validator, path string) {
	switch ttl := r.TTL.Std(); {
	case ttl < minTTL:
		v.errorf(path+".ttl", "%s leaves no time to renew; write at least %s", r.TTL, Duration(minTTL))
	case ttl > maxTTL:
		v.errorf(path+".ttl", "%s is how long nothing is written after a leader is lost; write at most %s", r.TTL, Duration(maxTTL))
	}
	if r.Lease.ZooKeeper != "" && r.Lease.Kubernetes != nil {
		v.errorf(path+".lease", "names both zookeeper and kubernetes; it requires exactly one")
	}
	if name := r.Lease.ZooKeeper; name != "" && v.Registries[name].ZooKeeper == nil {
		ensembles := slices.DeleteFunc(slices.Collect(maps.Keys(v.Registries)), func(name string) bool { return v.Registries[name].ZooKeeper == nil })
		v.errorf(path+".lease.zookeeper", "%q is no ZooKeeper of registries%s", name, suggest(name, ensembles))
	}
	if r.Shared() {
		validateLifetimes(v, v.Config)
	}
}

func (k KubernetesLease) validate(v *validator, path string) {
	if name := k.Object(v.Owner, "target"); !isObject(name) {
		v.errorf(path+".name", "%q is no name of an object; use a-z, 0-9, '-' and '.', with a letter or digit first", strings.TrimSuffix(name, "-target"))
	}
}

// validateLifetimes checks that entries which go with a session are adopted before.
func validateLifetimes(v *validator, c *Config) {
	for _, name := range slices.Sorted(maps.Keys(c.Registries)) {
		z := c.Registries[name].ZooKeeper
		if z != nil && z.Lifetime == "session" && z.SessionTimeout < 2*c.Replicas.TTL {
			v.errorf("registries."+name+".zookeeper.sessionTimeout", "%s is less than twice replicas.ttl, %s: entries of the lifetime session would go before another replica adopts them",
				z.SessionTimeout, c.Replicas.TTL)
		}
	}
}
