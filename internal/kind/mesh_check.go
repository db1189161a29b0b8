package kind

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/preflight"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/kube"
)

// skewLimit is the difference of two clocks above which tokens and certificates may fail.
const skewLimit = 30 * time.Second

func (s meshSource) Check(ctx context.Context, f *preflight.Findings) {
	m := s.istiod
	if m.TokenFile != "" {
		checkToken(f, m, time.Now())
	}
	if err := dial(ctx, m.Address); err != nil {
		f.Unreachable("reachable", err,
			"check istiod.address, the Service of istiod, and any NetworkPolicy between the bridge and istiod")
		return
	}
	f.Pass("reachable", "%s", m.Address)
	checkVersion(ctx, f, m)
	seen := runUntilReported(ctx, s.Source)
	switch received := clustersReceived(seen); {
	case seen.Stream.Err != nil && !received:
		f.Unreachable("xDS", seen.Stream.Err, "check tls, tokenFile and node.namespace; istiod's log has the reason")
		return
	case !received:
		f.Unreachable("xDS", errors.New("istiod has not reported everything yet"),
			"increase --timeout; istiod may still be starting")
		return
	}
	f.Pass("xDS", "%s, %s of services", seen.Stream.Mode, registry.Counted(seen.Clusters, "cluster", "clusters"))
	checkMapping(f, m, seen.Mapping)
}

func dial(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func clustersReceived(s mesh.Status) bool { return s.Stream.Types[mesh.ClusterType].Responses > 0 }

// runUntilReported runs a source until everything was reported, or reading the service keys
// failed. It returns the last status.
func runUntilReported(ctx context.Context, source *mesh.Source) (s mesh.Status) {
	err := runUntil(ctx, source, func() bool {
		s = source.Status()
		return s.Complete || clustersReceived(s) && s.Mapping.Err != nil
	})
	if err != nil {
		s.Stream.Err = err
	}
	return s
}

// runUntil runs a source until done returns true or ctx ends. It discards what the source
// reads.
func runUntil(ctx context.Context, source *mesh.Source, done func() bool) error {
	run := func(ctx context.Context) error { return source.Run(ctx, registry.NewTable()) }
	return during(ctx, run, func() {
		for !done() && ctx.Err() == nil {
			registry.Sleep(ctx, 20*time.Millisecond)
		}
	})
}

func checkMapping(f *preflight.Findings, m *config.Istiod, s debug.Snapshot) {
	const check = "service keys"
	from := mappingFrom(m)
	switch {
	case from == "none":
		f.Pass(check, "not read; mapping.from is none")
	case s.Err != nil:
		reportKeysUnread(f, check, s.Err)
	case !s.Complete:
		f.Fail(check, errors.New("not every replica of istiod has answered"),
			"increase --timeout, or list the replicas in mapping.addresses")
	default:
		if found := fmt.Sprintf("%d by %s", s.Mapping.Len(), from); from == "kubernetes" {
			f.Pass(check, "%s", found)
		} else {
			f.Pass(check, "%s from %s", found, registry.Counted(len(s.Replicas), "replica", "replicas"))
		}
		switch annotated := from == "api" || from == "kubernetes"; {
		case annotated:
			checkAnnotations(f, s, m.Mapping.Kubernetes.Keys.Annotation)
		case s.Mapping.Len() == 0:
			f.Warn(check, "no client publishes service keys",
				"enable the xDS registry in dubbo-go, which then publishes them; list other hosts in names of the bridge")
		}
	}
}

// reportKeysUnread reports why service keys cannot be read, with the remedy.
func reportKeysUnread(f *preflight.Findings, check string, err error) {
	e, ok := errors.AsType[*debug.Error](err)
	switch _, forbidden := errors.AsType[*kube.Forbidden](err); {
	case forbidden:
		f.Fail(check, err, allowReading)
	case !ok:
		f.Fail(check, err, "run xds-bridge status, which shows the state of each replica")
	case e.Cause == debug.Unreachable || e.Cause == debug.Slow:
		f.Unreachable(check, err, e.Remedy())
	default:
		f.Fail(check, err, e.Remedy())
	}
}

// checkAnnotations warns about service keys that are missing or wrong in the annotations of
// objects.
func checkAnnotations(f *preflight.Findings, s debug.Snapshot, annotation string) {
	const check = "service keys"
	if s.Unread != nil {
		f.Warn(check, s.Unread.Error(), "correct this first: the objects that were not read may have the missing keys")
	}
	for _, p := range s.Skipped {
		f.Warn(check, p.Error(), "correct the annotation")
	}
	if s.Mapping.Len() == 0 {
		f.Warn(check, "no object has service keys",
			"add the annotation "+annotation+", or list hosts in names of the bridge")
	}
}

// checkVersion reports the version of istiod from its monitoring port, and compares the
// clocks by the Date header of the response.
func checkVersion(ctx context.Context, f *preflight.Findings, m *config.Istiod) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	host, _, _ := net.SplitHostPort(m.Address)
	at := net.JoinHostPort(host, debug.MonitoringPort)
	if len(m.Mapping.Addresses) > 0 {
		at = m.Mapping.Addresses[0]
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/version", nil)
	if err != nil {
		return
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		f.Warn("version", "unknown: "+err.Error(), "to see it, open istiod's port "+debug.MonitoringPort+" to the bridge")
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil || resp.StatusCode != http.StatusOK {
		f.Warn("version", at+" does not report it", "")
	} else {
		f.Pass("version", "%s", strings.TrimSpace(string(body)))
	}
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		checkClock(f, time.Since(at).Truncate(time.Second))
	}
}

func checkClock(f *preflight.Findings, skew time.Duration) {
	if skew.Abs() > skewLimit {
		f.Warn("clock", fmt.Sprintf("differs from ours by %s", skew.Abs()),
			"synchronize both machines by NTP; tokens and certificates depend on the time")
		return
	}
	f.Pass("clock", "within %s of ours", max(skew.Abs(), time.Second))
}

// claims are the checked claims of a service account token.
type claims struct {
	Audience   audience `json:"aud"`
	Expires    int64    `json:"exp"`
	Kubernetes struct {
		Namespace string `json:"namespace"`
	} `json:"kubernetes.io"`
}

// audience is one string or a list of strings, as in RFC 7519.
type audience []string

// UnmarshalJSON accepts both forms.
func (a *audience) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*a = audience{one}
		return nil
	}
	var many []string
	err := json.Unmarshal(data, &many)
	*a = many
	return err
}

// checkToken checks the claims of the token. It never prints the token.
func checkToken(f *preflight.Findings, m *config.Istiod, now time.Time) {
	const check = "token"
	const project = "project a token of audience istio-ca into the pod, and set tokenFile to its file"
	secret, err := config.ReadSecret(m.TokenFile)
	if err != nil {
		f.Fail(check, err, project)
		return
	}
	c, err := readClaims(secret)
	expires := time.Unix(c.Expires, 0)
	switch {
	case err != nil:
		f.Fail(check, fmt.Errorf("%s: expected a service account token: %w", m.TokenFile, err), project)
	case !slices.Contains(c.Audience, "istio-ca"):
		f.Fail(check, fmt.Errorf("its audience is %q, but istiod accepts only istio-ca", []string(c.Audience)), project)
	case c.Expires != 0 && now.After(expires):
		f.Fail(check, fmt.Errorf("it expired at %s", expires.UTC().Format(time.RFC3339)),
			"mount the token as a projected volume, not by subPath, so that the kubelet rotates it")
	case c.Kubernetes.Namespace != "" && c.Kubernetes.Namespace != m.Node.Namespace:
		f.Fail(check, fmt.Errorf("its namespace is %q, but node.namespace is %q", c.Kubernetes.Namespace, m.Node.Namespace),
			"set istiod.node.namespace to the namespace of the service account; the debug API requires the root namespace")
	default:
		f.Pass(check, "audience istio-ca")
	}
}

func readClaims(token config.Secret) (claims, error) {
	var c claims
	parts := strings.Split(token.Reveal(), ".")
	if len(parts) != 3 {
		return c, errors.New("not a JWT of three parts")
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return c, errors.New("its payload is not base64")
	}
	if json.Unmarshal(payload, &c) != nil {
		return c, errors.New("its payload is not JSON")
	}
	return c, nil
}
