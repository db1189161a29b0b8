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
	minTTL = time.Second // leaves time to repeat a failed renewal
	maxTTL = time.Hour
)

// Replicas says how several processes with this configuration share the work.
type Replicas struct {
	Lease    Lease    `yaml:"lease" doc:"Where the replicas elect the leader of each target. Without it, only one replica may run."`
	TTL      Duration `yaml:"ttl" default:"15s" doc:"How long the lease of a leader lasts without renewal. The leader stops writing after two thirds of this time; another replica takes over after all of it."`
	Expected int      `yaml:"expected" default:"2" check:"count" doc:"The number of replicas that should run. With fewer, status reports the condition replica-missing. 0 and 1: no check."`
	Identity string   `yaml:"identity" check:"name" doc:"The name of this replica. A random part is added at each start. Empty: the host name."`
}

// Lease says where the replicas store the lease record of each target; at most
// one field is set.
type Lease struct {
	ZooKeeper  string           `yaml:"zookeeper" doc:"The name of a ZooKeeper under registries."`
	Kubernetes *KubernetesLease `yaml:"kubernetes" doc:"Lease objects of Kubernetes, one for each target."`
}

// KubernetesLease says where Lease objects are. In a pod all fields have
// defaults.
type KubernetesLease struct {
	Namespace string `yaml:"namespace" doc:"The namespace of the Lease objects. Empty: the namespace of the pod."`
	Name      string `yaml:"name" doc:"The prefix of the names of Lease objects; a hyphen and the name of the registry follow. Empty: xds-bridge- and the owner."`
	Server    string `yaml:"server" check:"url" doc:"The API server as https://host:port. Empty: the server in the environment of the pod."`
	CAFile    string `yaml:"caFile" check:"certificates" default:"/var/run/secrets/kubernetes.io/serviceaccount/ca.crt" doc:"CA certificates as PEM."`
	TokenFile string `yaml:"tokenFile" check:"secret" default:"/var/run/secrets/kubernetes.io/serviceaccount/token" doc:"A file with the token for the API server. Read again when it changes."`
}

// Object returns the name of the Lease of a target. It contains the target's
// name, or a hash of it if Kubernetes does not accept the name.
func (k KubernetesLease) Object(owner, target string) string {
	if !isObjectName(target) {
		sum := sha256.Sum256([]byte(target))
		target = hex.EncodeToString(sum[:6])
	}
	return cmp.Or(k.Name, "xds-bridge-"+strings.ToLower(owner)) + "-" + target
}

func isObjectName(name string) bool { return len(name) <= 253 && objectForm.MatchString(name) }

// Shared reports whether several processes may share this configuration.
func (r Replicas) Shared() bool { return r.Lease.ZooKeeper != "" || r.Lease.Kubernetes != nil }

func (r Replicas) validate(v *validator, path string) {
	switch ttl := r.TTL.Std(); {
	case ttl < minTTL:
		v.errorf(path+".ttl", "must be at least %s, to leave time to renew (got %s)", Duration(minTTL), r.TTL)
	case ttl > maxTTL:
		v.errorf(path+".ttl", "must be at most %s, because nothing is written for that long after a leader is lost (got %s)",
			Duration(maxTTL), r.TTL)
	}
	if r.Lease.ZooKeeper != "" && r.Lease.Kubernetes != nil {
		v.errorf(path+".lease", "must not have both zookeeper and kubernetes; leave one out")
	}
	if name := r.Lease.ZooKeeper; name != "" && v.Registries[name].ZooKeeper == nil {
		names := slices.Collect(maps.Keys(v.Registries))
		ensembles := slices.DeleteFunc(names, func(name string) bool { return v.Registries[name].ZooKeeper == nil })
		v.errorf(path+".lease.zookeeper", "%q is not a ZooKeeper of registries%s", name, suggest(name, ensembles))
	}
	if r.Shared() {
		validateLifetimes(v, v.Config)
	}
}

func (k KubernetesLease) validate(v *validator, path string) {
	if name := k.Object(v.Owner, "target"); !isObjectName(name) {
		v.errorf(path+".name", "must be an object name of a-z, 0-9, '-' and '.', starting with a letter or digit (got %q)",
			strings.TrimSuffix(name, "-target"))
	}
}

// validateLifetimes checks that another replica can adopt entries of the lifetime
// session before they expire.
func validateLifetimes(v *validator, c *Config) {
	for _, name := range slices.Sorted(maps.Keys(c.Registries)) {
		z := c.Registries[name].ZooKeeper
		if z != nil && z.Lifetime == "session" && z.SessionTimeout < 2*c.Replicas.TTL {
			v.errorf("registries."+name+".zookeeper.sessionTimeout", "must be at least twice replicas.ttl, %s (got %s): "+
				"entries of lifetime session would expire before another replica adopts them", c.Replicas.TTL, z.SessionTimeout)
		}
	}
}
