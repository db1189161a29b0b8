package naming

import "strings"

// The lengths of DNS, in bytes.
const (
	maxHost  = 253
	maxLabel = 63
)

// KubernetesHost is the host name of a Kubernetes service,
// `name.namespace.svc.domain`.
type KubernetesHost struct {
	Name      string
	Namespace string
	Domain    string // of the cluster: cluster.local in most, and never to be relied on
}

// String returns the fully qualified name.
func (h KubernetesHost) String() string { return h.Name + "." + h.Namespace + ".svc." + h.Domain }

// ParseKubernetesHost splits the host of a Kubernetes service of whatever
// cluster domain. The error is an *Error, also for a host that is a good name
// but not of that form.
func ParseKubernetesHost(host string) (KubernetesHost, error) {
	canonical := canonicalHost(host)
	if reason := hostProblem(canonical); reason != "" {
		return KubernetesHost{}, bad(kindHost, host, reason)
	}
	parts := strings.SplitN(canonical, ".", 4)
	if len(parts) < 4 || parts[2] != "svc" {
		return KubernetesHost{}, bad(kindHost, host, "not of the form name.namespace.svc.domain")
	}
	return KubernetesHost{Name: parts[0], Namespace: parts[1], Domain: parts[3]}, nil
}

// canonicalHost lowers a host and takes its trailing dot away, since DNS,
// Envoy and istiod take all of these spellings for one.
func canonicalHost(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }

// hostProblem returns what is wrong with a host name, empty if nothing is. The
// rules are istio's for the hosts of a ServiceEntry, without wildcards.
func hostProblem(host string) string {
	switch {
	case host == "":
		return "the host is empty"
	case len(host) > maxHost:
		return "the host is longer than 253 bytes"
	}
	last := ""
	for label := range strings.SplitSeq(host, ".") {
		if !dnsLabel(label) {
			return "the host is no DNS name"
		}
		last = label
	}
	if strings.Trim(last, "0123456789") == "" {
		return "the host is neither an IP address nor a DNS name"
	}
	return ""
}

// dnsLabel follows istio: up to 63 letters, digits and inner hyphens.
func dnsLabel(s string) bool {
	return s != "" && len(s) <= maxLabel && only(s, "-") && alphanumeric(s[0]) && alphanumeric(s[len(s)-1])
}
