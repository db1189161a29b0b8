package kube

import (
	"strings"
)

// protocolOf returns the RPC protocol that a port tells; empty where it tells
// none, and then that of the format counts. Istio reads `appProtocol` before the
// beginning of the port's name, and knows no Dubbo: with it, such a port is called
// `tcp-dubbo` or `grpc-tri`. So each word of either is looked at.
func protocolOf(application, name string) string {
	application = application[strings.LastIndexByte(application, '/')+1:]
	for _, text := range []string{application, name} {
		for word := range strings.SplitSeq(strings.ToLower(text), "-") {
			switch word {
			case "dubbo":
				return "dubbo"
			case "tri", "triple":
				return "tri"
			}
		}
	}
	return ""
}
