package harness

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// AddUser makes a user that may read and write one namespace. The server may
// learn of it only some time later.
func (n *Nacos) AddUser(t testing.TB, name, password, namespace string) {
	t.Helper()
	n.administer(t, http.MethodPost, "user", url.Values{"username": {name}, "password": {password}})
	n.administer(t, http.MethodPost, "role", url.Values{"username": {name}, "role": {"role-" + name}})
	n.Grant(t, name, namespace)
}

// NewNamespace makes a namespace and returns its id; its name is "name-of-" and
// the id. The servers of version 2 that tests have accept any id, and list none.
func (n *Nacos) NewNamespace(t testing.TB) string {
	t.Helper()
	id := fmt.Sprintf("t%08x", rand.Uint32()) //nolint:gosec // keeps no secret
	if n.options.Version == 3 {
		must(t, n.post(t, "/v3/admin/core/namespace", url.Values{"namespaceId": {id}, "customNamespaceId": {id}, "namespaceName": {"name-of-" + id}}))
	}
	return id
}

// Grant lets a user of AddUser read and write a namespace, at the latest 15 s
// after.
func (n *Nacos) Grant(t testing.TB, name, namespace string) {
	t.Helper()
	n.administer(t, http.MethodPost, "permission", n.permission(name, namespace))
}

// Revoke removes that again, as late.
func (n *Nacos) Revoke(t testing.TB, name, namespace string) {
	t.Helper()
	n.administer(t, http.MethodDelete, "permission", n.permission(name, namespace))
}

func (*Nacos) permission(name, namespace string) url.Values {
	return url.Values{"role": {"role-" + name}, "resource": {namespace + ":*:*"}, "action": {"rw"}}
}

// administer does something to users, roles or permissions, as NacosUser.
func (n *Nacos) administer(t testing.TB, method, what string, form url.Values) {
	t.Helper()
	path := "/nacos/v3/auth/" + what
	if n.options.Version == 2 {
		path = "/nacos/v1/auth/" + what + "s"
	}
	Eventually(t, time.Minute, what+" of Nacos", func() error {
		form.Set("accessToken", n.token(t))
		req, err := http.NewRequestWithContext(t.Context(), method, n.URL+path+"?"+form.Encode(), nil)
		must(t, err)
		return answered(req)
	})
}

// NewSecret makes every token worthless once the server is started again.
func (n *Nacos) NewSecret(t testing.TB) {
	t.Helper()
	at := filepath.Join(n.dir, "conf", "application.properties")
	text, err := os.ReadFile(at)
	must(t, err)
	const key = "nacos.core.auth.plugin.nacos.token.secret.key="
	secret := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("another secret "+strconv.Itoa(n.port), 3)))
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, key) {
			lines[i] = key + secret
		}
	}
	must(t, os.WriteFile(at, []byte(strings.Join(lines, "\n")), 0o600))
}
