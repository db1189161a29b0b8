package client

import (
	"cmp"
	"fmt"
	"net/url"
	"os"

	gxnet "github.com/dubbogo/gost/net"
)

// SetProcess adds to the parameters of a URL of a scheme what they leave out and the
// environment tells of this process: POD_NAME, POD_NAMESPACE and POD_IP, as
// Kubernetes gives them by its downward API. Without it an identity is host and
// process.
func SetProcess(scheme string, values url.Values) {
	host, _ := os.Hostname()
	told := map[string]string{"identity": cmp.Or(os.Getenv("POD_NAME"), fmt.Sprintf("%s-%d", host, os.Getpid()))}
	if scheme == "mesh" || scheme == "mesh+tls" {
		ip, _ := gxnet.GetLocalIP()
		told = map[string]string{
			"name": cmp.Or(os.Getenv("POD_NAME"), host), "namespace": os.Getenv("POD_NAMESPACE"), "ip": cmp.Or(os.Getenv("POD_IP"), ip),
		}
	}
	for name, value := range told {
		if value != "" && !values.Has(name) {
			values.Set(name, value)
		}
	}
}
