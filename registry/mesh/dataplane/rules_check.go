package dataplane

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	networking "istio.io/api/networking/v1alpha3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/xds-bridge/xds-bridge/naming"
)

// ruleChecks collects the failures of a rule. A rule without failures is accepted by Envoy
// and gRPC, which would otherwise reject all routes of a port because of one.
type ruleChecks struct {
	failures []fieldFailure
}

// A fieldFailure is a field and the reason why it is not accepted.
type fieldFailure struct{ path, reason string }

func (c *ruleChecks) fail(path, reason string) {
	c.failures = append(c.failures, fieldFailure{path, reason})
}

// failIf records a failure if reason is not empty.
func (c *ruleChecks) failIf(path, reason string) {
	if reason != "" {
		c.fail(path, reason)
	}
}

// rejectOtherFields fails for each field of a message that is set but not supported.
func (c *ruleChecks) rejectOtherFields(path string, m proto.Message, supported ...protoreflect.Name) {
	var others []string
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !slices.Contains(supported, f.Name()) {
			others = append(others, f.JSONName())
		}
		return true
	})
	for _, name := range slices.Sorted(slices.Values(others)) {
		c.fail(path+"."+name, "is not supported for data planes")
	}
}

// checkDestinationRule checks a DestinationRule. others has the subsets of earlier
// DestinationRules of its host.
func (c *ruleChecks) checkDestinationRule(d *networking.DestinationRule, others []*networking.Subset) {
	c.rejectOtherFields("spec", d, "host", "subsets", "traffic_policy", "export_to")
	c.failIf("spec.host", hostReason(d.GetHost()))
	c.checkExportTo(d.GetExportTo())
	if p := d.GetTrafficPolicy(); p != nil && !proto.Equal(p, preferNear()) {
		c.fail("spec.trafficPolicy", "only loadBalancer: {localityLbSetting: {enabled: true}} is supported")
	}
	names := make(map[string]bool)
	for _, s := range others {
		names[s.GetName()] = true
	}
	for i, s := range d.GetSubsets() {
		path := fmt.Sprintf("spec.subsets[%d]", i)
		c.rejectOtherFields(path, s, "name", "labels")
		c.failIf(path+".name", subsetReason(s.GetName()))
		if names[s.GetName()] {
			c.fail(path+".name", naming.Quote(s.GetName())+" is defined twice")
		}
		names[s.GetName()] = true
		for _, k := range slices.Sorted(maps.Keys(s.GetLabels())) {
			wrong := slices.Concat(validation.IsQualifiedName(k), validation.IsValidLabelValue(s.GetLabels()[k]))
			if len(wrong) > 0 { // no endpoint can have such a label
				c.fail(path+".labels", fmt.Sprintf("%s: %s is not a valid label of Kubernetes: %s",
					naming.Quote(k), naming.Quote(s.GetLabels()[k]), strings.Join(wrong, "; ")))
			}
		}
	}
}

// parseVirtualService checks a VirtualService, and returns its routes. subset returns the
// reason why a host does not have a subset.
func (c *ruleChecks) parseVirtualService(
	s *networking.VirtualService, subset func(host, name string) string,
) []routeRule {
	c.rejectOtherFields("spec", s, "hosts", "gateways", "http", "export_to")
	if len(s.GetHosts()) == 0 {
		c.fail("spec.hosts", "names no host")
	}
	for i, host := range s.GetHosts() {
		path := fmt.Sprintf("spec.hosts[%d]", i)
		c.failIf(path, hostReason(host))
		if slices.Contains(s.GetHosts()[:i], host) {
			c.fail(path, naming.Quote(host)+" is listed twice")
		}
	}
	if g := s.GetGateways(); len(g) > 0 && !slices.Equal(g, []string{"mesh"}) {
		c.fail("spec.gateways", "gateways are not served: leave it out, or write [mesh]")
	}
	c.checkExportTo(s.GetExportTo())
	if len(s.GetHttp()) == 0 {
		c.fail("spec.http", "has no route")
	}
	rules := make([]routeRule, 0, len(s.GetHttp()))
	for i, h := range s.GetHttp() {
		path := fmt.Sprintf("spec.http[%d]", i)
		c.rejectOtherFields(path, h, "name", "match", "route")
		c.checkDestinations(path+".route", h.GetRoute(), subset)
		rules = append(rules, routeRule{
			name:    cmp.Or(h.GetName(), fmt.Sprintf("route-%d", i+1)),
			matches: c.parseMatches(path+".match", h.GetMatch()),
			to:      h.GetRoute(),
		})
	}
	return rules
}

func (c *ruleChecks) checkExportTo(namespaces []string) {
	if len(namespaces) > 0 && !slices.Equal(namespaces, []string{"*"}) {
		c.fail("spec.exportTo", "rules apply in all namespaces: leave it out, or write [\"*\"]")
	}
}

// checkDestinations checks the destinations of a route.
func (c *ruleChecks) checkDestinations(
	path string, all []*networking.HTTPRouteDestination, subset func(host, name string) string,
) {
	if len(all) == 0 {
		c.fail(path, "has no destination")
		return
	}
	var sum int64
	for i, to := range all {
		path, d := fmt.Sprintf("%s[%d]", path, i), to.GetDestination()
		c.rejectOtherFields(path, to, "destination", "weight")
		if to.GetWeight() < 0 {
			c.fail(path+".weight", "must be at least 0")
		}
		sum += int64(to.GetWeight())
		if d == nil {
			c.fail(path, "has no destination")
			continue
		}
		path += ".destination"
		c.rejectOtherFields(path, d, "host", "subset", "port")
		c.failIf(path+".host", hostReason(d.GetHost()))
		c.failIf(path+".subset", subset(d.GetHost(), d.GetSubset()))
		if p := d.GetPort(); p != nil {
			c.rejectOtherFields(path+".port", p, "number")
			if p.GetNumber() == 0 || p.GetNumber() > math.MaxUint16 {
				c.fail(path+".port", fmt.Sprintf("%d is not within 1 to 65535", p.GetNumber()))
			}
		}
	}
	if len(all) > 1 && (sum == 0 || sum > math.MaxUint32) {
		c.fail(path, fmt.Sprintf("the sum of the weights must be between 1 and %d (got %d)", uint32(math.MaxUint32), sum))
	}
}

// hostReason returns the reason why a host cannot be served, or "" if it can.
func hostReason(host string) string {
	switch {
	case host == "":
		return "names no host"
	case strings.Contains(host, "*"):
		return naming.Quote(host) + ": host patterns are not supported; list each host"
	}
	if wrong := validation.IsDNS1123Subdomain(host); len(wrong) > 0 {
		return fmt.Sprintf("%s is not a host: %s", naming.Quote(host), wrong[0])
	}
	return ""
}

// subsetReason returns the reason why a text cannot be the name of a subset, or "" if it can.
func subsetReason(name string) string {
	if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
		return fmt.Sprintf("%s is not a name of a subset: %s", naming.Quote(name), wrong[0])
	}
	return ""
}

// headerReason returns the reason why a condition on a header is not supported, or "" if it
// is.
func headerReason(name string) string {
	switch lower := strings.ToLower(name); {
	case name == "":
		return "the name of a header is empty"
	case strings.Trim(lower, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
		return naming.Quote(name) + " is not a name of a header; for conditions on path and method use uri and method"
	case lower == "host":
		return "the hosts of the VirtualService already match the host of a request"
	case strings.HasSuffix(lower, "-bin"):
		return naming.Quote(name) + ": gRPC does not match binary headers"
	}
	return ""
}

// expressionReason returns the reason why a regular expression is not supported, or "" if it
// is. Envoy's RE2 has the syntax of Go except for some classes, compares bytes instead of
// UTF-8, and rejects large programs.
func expressionReason(text string) string {
	const maxLength = 1024 // the same as Istio's
	expression, err := syntax.Parse(text, syntax.Perl)
	switch {
	case text == "":
		return "the regular expression is empty"
	case len(text) > maxLength:
		return fmt.Sprintf("the regular expression has %d bytes, at most %d", len(text), maxLength)
	case err != nil:
		return fmt.Sprintf("%v; the syntax is that of RE2", err)
	case strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) || strings.Contains(text, `\x{`):
		return "Envoy compares bytes: use only ASCII in a regular expression"
	}
	for _, class := range regexp.MustCompile(`\\[pP]\{\^?([^}]*)\}`).FindAllStringSubmatch(text, -1) {
		if name := class[1]; len(name) > 2 || name == "LC" || name == "Cn" || unicode.Categories[name] == nil {
			return "Envoy does not know the class " + naming.Quote(class[0])
		}
	}
	if n := programSize(expression.Simplify()); n > maxProgram {
		return fmt.Sprintf("the regular expression is a program of about %d steps, and Envoy accepts about %d: "+
			"split it into shorter ones", n, maxProgram)
	}
	return ""
}

// maxProgram is below 100, the default of Envoy's re2.max_program_size.error_level, by the
// possible error of programSize.
const maxProgram = 90

// programSize estimates the size of the program into which RE2 compiles an expression.
func programSize(re *syntax.Regexp) int {
	size := ownSize(re)
	if re.Op == syntax.OpStar || re.Op == syntax.OpPlus {
		return repeatedSize(re)
	}
	for _, sub := range re.Sub {
		size += programSize(sub)
	}
	return size
}

// repeatedSize is programSize inside a loop, of which RE2 compiles most parts twice.
func repeatedSize(re *syntax.Regexp) int {
	size := ownSize(re)
	if re.Op != syntax.OpLiteral {
		size = 2*size + 1 // twice, and a jump back
	}
	for _, sub := range re.Sub {
		size += repeatedSize(sub)
	}
	return size
}

// ownSize is programSize without the operands.
func ownSize(re *syntax.Regexp) int {
	switch re.Op { //nolint:exhaustive // each other operation is one step
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass:
		size := 0
		for i := 0; i < len(re.Rune); i += 2 {
			if re.Rune[i] <= math.MaxUint8 {
				size++
			}
		}
		return size
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL, syntax.OpCapture:
		return 2 //nolint:mnd // as above
	case syntax.OpConcat:
		return 0
	case syntax.OpAlternate:
		return len(re.Sub)
	}
	return 1
}
