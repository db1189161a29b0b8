package harness

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Request sends a request to the API as the administrator and returns the
// status and the body of the answer. The content type is that of JSON unless
// given.
func (k *Kubernetes) Request(t testing.TB, method, path, body, contentType string) (int, string, error) {
	t.Helper()
	if contentType == "" {
		contentType = "application/json"
	}
	request, err := http.NewRequestWithContext(t.Context(), method, k.URL+path, strings.NewReader(body))
	must(t, err)
	request.Header.Set("Authorization", "Bearer "+Administrator)
	request.Header.Set("Content-Type", contentType)
	response, err := k.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), errors.Join(err, response.Body.Close())
}

// StatusFor returns the status that a client with a token is answered with at a
// path.
func (k *Kubernetes) StatusFor(t testing.TB, token, path string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, k.URL+path, http.NoBody)
	must(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := k.client.Do(request)
	must(t, err)
	must(t, response.Body.Close())
	return response.StatusCode
}

// Do sends a request as the administrator, fails the test where it is refused,
// and returns the body of the answer.
func (k *Kubernetes) Do(t testing.TB, method, path, body string) string {
	t.Helper()
	status, answer, err := k.Request(t, method, path, body, "")
	if err != nil || status >= http.StatusMultipleChoices {
		t.Fatalf("%s %s: status %d, %v: %s", method, path, status, err, answer)
	}
	return answer
}

// Namespace makes a namespace.
func (k *Kubernetes) Namespace(t testing.TB, name string) {
	t.Helper()
	k.Do(t, http.MethodPost, "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
}

// ServiceAccount makes an account in a namespace.
func (k *Kubernetes) ServiceAccount(t testing.TB, namespace, name string) {
	t.Helper()
	k.Do(t, http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
}

// Token returns a token of an account, as the kubelet gets it for a pod.
func (k *Kubernetes) Token(t testing.TB, namespace, account string) string {
	t.Helper()
	var answer struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	body := k.Do(t, http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+account+"/token", `{"spec":{"expirationSeconds":3600}}`)
	must(t, json.Unmarshal([]byte(body), &answer))
	if answer.Status.Token == "" {
		t.Fatalf("no token in %s", body)
	}
	return answer.Status.Token
}

const rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/"

// Allow lets an account apply these verbs to the leases of its namespace,
// and nothing else. It may be called again with other verbs.
func (k *Kubernetes) Allow(t testing.TB, namespace, account string, verbs ...string) {
	t.Helper()
	list, err := json.Marshal(verbs)
	must(t, err)
	k.apply(t, rbac+namespace+"/roles/"+account, fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":%q},
		"rules":[{"apiGroups":["coordination.k8s.io"],"resources":["leases"],"verbs":%s}]}`, account, list))
	k.apply(t, rbac+namespace+"/rolebindings/"+account, fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":%q},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":%[1]q},
		"subjects":[{"kind":"ServiceAccount","name":%[1]q,"namespace":%q}]}`, account, namespace))
}

// Forbid revokes what Allow allowed.
func (k *Kubernetes) Forbid(t testing.TB, namespace, account string) {
	t.Helper()
	k.Do(t, http.MethodDelete, rbac+namespace+"/rolebindings/"+account, "")
}

// apply makes an object or changes it to this.
func (k *Kubernetes) apply(t testing.TB, path, object string) {
	t.Helper()
	if status, answer := k.Apply(t, path, object); status >= http.StatusMultipleChoices {
		t.Fatalf("apply %s: status %d: %s", path, status, answer)
	}
}

// Apply makes an object or changes it to this, as kubectl apply --server-side
// does; the object is YAML or JSON, and an unknown field is an error.
func (k *Kubernetes) Apply(t testing.TB, path, object string, options ...string) (int, string) {
	t.Helper()
	query := strings.Join(append([]string{"fieldManager=test", "force=true", "fieldValidation=Strict"}, options...), "&")
	status, answer, err := k.Request(t, http.MethodPatch, path+"?"+query, object, "application/apply-patch+yaml")
	must(t, err)
	return status, answer
}

func trusting(t testing.TB, ca CA) *http.Transport {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
}
