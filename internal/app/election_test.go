package app

import (
	"strings"
	"testing"
)

// TestInPod shows where Leases are looked for outside of a pod and within one.
func TestInPod(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, given := range [][2]string{{"", "a"}, {"https://a", ""}} {
		if _, _, err := inPod(given[0], given[1]); err == nil || !strings.Contains(err.Error(), "not in a pod, and none is given") {
			t.Errorf("inPod(%v) = %v, want that this is no pod", given, err)
		}
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "")
	if server, namespace, err := inPod("", "a"); server != "https://[fd00::1]:443" || namespace != "a" || err != nil {
		t.Errorf("inPod = %s, %s, %v, want the server of the environment and namespace a", server, namespace, err)
	}
}
