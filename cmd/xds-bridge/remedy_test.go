package main

import (
	"errors"
	"strings"
	"testing"
)

// V21: each kind of error has its own remedy.
func TestRemediesAreByKindOfError(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`connection error: desc = "error reading server preface: http2: frame too large"`: "speaks no gRPC",
		"tls: first record does not look like a TLS handshake":                            "the port speaks plaintext",
		"x509: certificate signed by unknown authority":                                   "tls.caFile",
		"x509: certificate is valid for istiod.istio-system.svc, not 10.0.0.1":            "tls.serverName",
		"dial tcp: lookup zk on 10.0.0.2:53: no such host":                                "not known to DNS",
		"dial tcp 127.0.0.1:1: connect: connection refused":                               "nobody listens at that port",
		"something else": "check this",
	} {
		if got := remedyOf(errors.New(text), "check this"); !strings.Contains(got, want) || !strings.HasSuffix(got, "check this") {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// V48: a pattern that fits nothing is told of with its setting.
func TestPlanNamesPatternsThatFitNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: `, select: { include: ["orders.*", "odrers.*"], exclude: ["x.*"] }, names: [{ host: "y.*", interface: api.Y }]`})
	r := do(t, "plan", "-f", file)
	r.want(t, exitFindings, `bridges[0].select.include[1]: "odrers.*" fits no service of mesh`, `bridges[0].select.exclude[0]: "x.*" fits no`, `bridges[0].names[0].host: "y.*" fits no`)
	if strings.Contains(r.out, "include[0]") {
		t.Error(r.out)
	}
}

// V21: Nacos takes any namespace, and shows what lies in one without a name to nobody.
func TestPreflightDoubtsANamespaceThatHoldsNothing(t *testing.T) {
	t.Parallel()
	w := newNacosWorld(t, "")
	do(t, "preflight", "-f", w.conf(", namespace: Production")).want(t, exitOK, "‼ list: no service of our formats is in namespace Production", "the id of the namespace")
}
