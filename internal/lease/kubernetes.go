package lease

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
)

// KubernetesOptions say where a Lease object is.
type KubernetesOptions struct {
	Server    string // of the API, such as https://10.0.0.1:443; empty: as the environment of a pod tells
	Namespace string // empty: the pod's own
	Name      string
	CAFile    string // certificates to trust as PEM
	TokenFile string // read again for every request
	TTL       time.Duration
}

// Kubernetes keeps the record in an annotation of a Lease object. It speaks
// the three requests that takes itself: a client library for them is ten times
// their size.
type Kubernetes struct {
	opts KubernetesOptions
	url  string // of the leases of the namespace

	mu     sync.Mutex
	client *http.Client // nil: to be made, with the certificates as they are by then
}

const (
	annotation   = "xds-bridge/replicas"
	podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	maxAnswer    = 1 << 20
	microTime    = "2006-01-02T15:04:05.000000Z07:00"
	mergePatch   = "application/merge-patch+json"
)

// NewKubernetes returns a store over a Lease object. The error names what is
// missing.
func NewKubernetes(o KubernetesOptions) (*Kubernetes, error) {
	if o.Server == "" {
		host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
		if host == "" {
			return nil, errors.New("server: not in a pod, and none is given")
		}
		o.Server = "https://" + net.JoinHostPort(host, cmp.Or(port, "443"))
	}
	if o.Namespace == "" {
		b, err := os.ReadFile(podNamespace)
		if err != nil {
			return nil, fmt.Errorf("namespace: not in a pod, and none is given: %w", err)
		}
		o.Namespace = strings.TrimSpace(string(b))
	}
	if o.Name == "" {
		return nil, errors.New("name: missing")
	}
	return &Kubernetes{
		opts: o,
		url: strings.TrimSuffix(o.Server, "/") + "/apis/coordination.k8s.io/v1/namespaces/" +
			url.PathEscape(o.Namespace) + "/leases",
	}, nil
}

// A lease is what is read and written of the object.
type leaseObject struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Metadata   struct {
		Name            string            `json:"name,omitempty"`
		ResourceVersion string            `json:"resourceVersion,omitempty"`
		Annotations     map[string]string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Spec struct { // for people; nothing is decided by it
		HolderIdentity       string `json:"holderIdentity,omitempty"`
		LeaseDurationSeconds int    `json:"leaseDurationSeconds,omitempty"`
		RenewTime            string `json:"renewTime,omitempty"`
	} `json:"spec"`
}

// Changed implements Store: nobody tells.
func (*Kubernetes) Changed() <-chan struct{} { return nil }

// Load implements Store.
func (k *Kubernetes) Load(ctx context.Context) ([]byte, string, error) {
	var l leaseObject
	status, err := k.do(ctx, http.MethodGet, k.url+"/"+url.PathEscape(k.opts.Name), nil, &l)
	switch {
	case status == http.StatusNotFound:
		return nil, "", nil
	case err != nil:
		return nil, "", err
	}
	return []byte(l.Metadata.Annotations[annotation]), l.Metadata.ResourceVersion, nil
}

// Save implements Store.
func (k *Kubernetes) Save(ctx context.Context, record []byte, version string) error {
	now, l := time.Now(), leaseObject{}
	l.Metadata.ResourceVersion, l.Metadata.Annotations = version, map[string]string{annotation: string(record)}
	l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = max(int(k.opts.TTL.Seconds()), 1), now.UTC().Format(microTime)
	if r, err := parse(record, now); err == nil {
		l.Spec.HolderIdentity = r.Leader
	}
	method, at := http.MethodPatch, k.url+"/"+url.PathEscape(k.opts.Name)
	if version == "" {
		method, at = http.MethodPost, k.url
		l.APIVersion, l.Kind, l.Metadata.Name = "coordination.k8s.io/v1", "Lease", k.opts.Name
	}
	body, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("write lease: %w", err)
	}
	status, err := k.do(ctx, method, at, body, nil)
	if status == http.StatusConflict || status == http.StatusNotFound && version != "" {
		return fmt.Errorf("lease %s/%s: %w", k.opts.Namespace, k.opts.Name, registry.ErrConflict)
	}
	return err
}

// do makes a request and decodes the answer. Redirects are not followed: the
// token is for this server alone.
func (k *Kubernetes) do(ctx context.Context, method, at string, body []byte, out any) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("lease: %w", err)
	}
	token, err := os.ReadFile(k.opts.TokenFile)
	if err != nil {
		return 0, fmt.Errorf("lease: tokenFile: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", mergePatch)
	}
	client, err := k.http()
	if err != nil {
		return 0, err
	}
	res, err := client.Do(req)
	if err != nil {
		k.Close()
		return 0, fmt.Errorf("lease: %w", err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return 0, fmt.Errorf("lease: %w", err)
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return res.StatusCode, k.refusal(method, res.StatusCode, answer)
	}
	if out == nil {
		return res.StatusCode, nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return 0, fmt.Errorf("lease: the answer of %s is none of Kubernetes: %w", k.opts.Server, err)
	}
	return res.StatusCode, nil
}

// refusal says what a server that refused a request wants.
func (k *Kubernetes) refusal(method string, status int, answer []byte) error {
	var told struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(answer, &told) // without a message the status has to do
	err := fmt.Errorf("lease %s/%s: status %d: %.300s", k.opts.Namespace, k.opts.Name, status, told.Message)
	switch status {
	case http.StatusForbidden:
		verb := map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPatch: "patch"}[method]
		return fmt.Errorf("%w; %s is not allowed: the service account needs a Role in namespace %s with get, create and patch of leases in coordination.k8s.io",
			err, verb, k.opts.Namespace)
	case http.StatusUnauthorized:
		return fmt.Errorf("%w; the token in %s is not accepted: it has expired, or is for another cluster or another audience", err, k.opts.TokenFile)
	}
	return err
}

func (k *Kubernetes) http() (*http.Client, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.client != nil {
		return k.client, nil
	}
	trust, err := tlsfile.Files{CA: k.opts.CAFile}.Config()
	if err != nil {
		return nil, fmt.Errorf("lease: %w", err)
	}
	k.client = &http.Client{
		Transport:     &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return k.client, nil
}

// Close gives the connections back. The next request reads the certificates
// anew.
func (k *Kubernetes) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.client != nil {
		k.client.CloseIdleConnections()
		k.client = nil
	}
}
