package mcp

import (
	"slices"
	"strings"
)

// meshConfig ends the one type of istiod's that is never answered: it has
// nothing to do with services, and istiod is ready without it.
const meshConfig = "/MeshConfig"

// ours reports whether a type is the one that is served here. Up to 1.23
// istiod asks for networking.istio.io/v1alpha3, later for v1; answers have to
// repeat the type that was asked for. Another version of it is not known, and
// like all types that are not ours gets one empty answer, because istiod is
// not ready before every type was answered.
func ours(typeURL string) bool {
	version, ok := strings.CutPrefix(typeURL, "networking.istio.io/")
	version, kind, _ := strings.Cut(version, "/")
	return ok && kind == "ServiceEntry" && slices.Contains([]string{"v1", "v1beta1", "v1alpha3"}, version)
}

// answered reports whether a type is answered at all.
func answered(typeURL string) bool { return !strings.HasSuffix(typeURL, meshConfig) }
