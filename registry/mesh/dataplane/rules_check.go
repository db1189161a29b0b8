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

// ruleChecks gathers why a rule is refused. What it accepts, Envoy and gRPC accept: they
// refuse all routes of a port for one that is invalid.
type ruleChecks struct {
	failures []fieldFailure
}

// A fieldFailure is one reason, at a field.
type fieldFailure struct{ path, reason string }

func (c *ruleChecks) fail(path, reason string) {
	c.failures = append(c.failures, fieldFailure{path, reason})
}

// failIf records a reason, if there is one.
func (c *ruleChecks) failIf(path, reason string) {
	if reason != "" {
		c.fail(path, reason)
	}
}

// rejectOtherFields refuses the fields of a message that are set and not followed.
func (c *ruleChecks) rejectOtherFields(path string, m proto.Message, followed ...protoreflect.Name) {
	var others []string
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !slices.Contains(followed, f.Name()) {
			others = append(others, f.JSONName())
		}
		return true
	})
	for _, name := range slices.Sorted(slices.Values(others)) {
		c.fail(path+"."+name, "data planes are not served this")
	}
}

func (c *ruleChecks) checkDestinationRule(d *networking.DestinationRule, others []*networking.Subset) {
	c.rejectOtherFields("spec", d, "host", "subsets", "traffic_policy", "export_to")
	c.failIf("spec.host", hostReason(d.GetHost()))
	c.checkExportTo(d.GetExportTo())
	if p := d.GetTrafficPolicy(); p != nil && !proto.Equal(p, preferNear()) {
		c.fail("spec.trafficPolicy", "only loadBalancer: {localityLbSetting: {enabled: true}} is followed")
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
			c.fail(path+".name", naming.Quote(s.GetName())+" is there twice")
		}
		names[s.GetName()] = true
		for _, k := range slices.Sorted(maps.Keys(s.GetLabels())) {
			wrong := slices.Concat(validation.IsQualifiedName(k), validation.IsValidLabelValue(s.GetLabels()[k]))
			if len(wrong) > 0 { // no endpoint has it
				c.fail(path+".labels", fmt.Sprintf("%s: %s is no label of Kubernetes: %s", naming.Quote(k), naming.Quote(s.GetLabels()[k]), strings.Join(wrong, "; ")))
			}
		}
	}
}

// parseVirtualService checks a VirtualService, and returns its rules. Subset returns why a
// host has no such subset.
func (c *ruleChecks) parseVirtualService(s *networking.VirtualService, subset func(host, name string) string) []routeRule {
	c.rejectOtherFields("spec", s, "hosts", "gateways", "http", "export_to")
	if len(s.GetHosts()) == 0 {
		c.fail("spec.hosts", "names no host")
	}
	for i, host := range s.GetHosts() {
		path := fmt.Sprintf("spec.hosts[%d]", i)
		c.failIf(path, hostReason(host))
		if slices.Contains(s.GetHosts()[:i], host) {
			c.fail(path, naming.Quote(host)+" is there twice")
		}
	}
	if g := s.GetGateways(); len(g) > 0 && !slices.Equal(g, []string{"mesh"}) {
		c.fail("spec.gateways", "data planes of gateways are not served: leave it out, or write [mesh]")
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
		rules = append(rules, routeRule{cmp.Or(h.GetName(), fmt.Sprintf("route-%d", i+1)), c.parseMatches(path+".match", h.GetMatch()), h.GetRoute()})
	}
	return rules
}

func (c *ruleChecks) checkExportTo(namespaces []string) {
	if len(namespaces) > 0 && !slices.Equal(namespaces, []string{"*"}) {
		c.fail("spec.exportTo", "rules are served in all namespaces: leave it out, or write [\"*\"]")
	}
}

func (c *ruleChecks) checkDestinations(path string, all []*networking.HTTPRouteDestination, subset func(host, name string) string) {
	if len(all) == 0 {
		c.fail(path, "has no destination")
		return
	}
	var sum int64
	for i, to := range all {
		path, d := fmt.Sprintf("%s[%d]", path, i), to.GetDestination()
		c.rejectOtherFields(path, to, "destination", "weight")
		if to.GetWeight() < 0 {
			c.fail(path+".weight", "is less than 0")
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
		c.fail(path, fmt.Sprintf("the weights add up to %d; want 1 to %d", sum, uint32(math.MaxUint32)))
	}
}

// hostReason returns why a host cannot be one that is served; empty: it can.
func hostReason(host string) string {
	switch {
	case host == "":
		return "names no host"
	case strings.Contains(host, "*"):
		return naming.Quote(host) + ": patterns of hosts are not followed; name each host"
	}
	if wrong := validation.IsDNS1123Subdomain(host); len(wrong) > 0 {
		return fmt.Sprintf("%s is no host: %s", naming.Quote(host), wrong[0])
	}
	return ""
}

func subsetReason(name string) string {
	if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
		return fmt.Sprintf("%s is no name of a subset: %s", naming.Quote(name), wrong[0])
	}
	return ""
}

// headerReason returns why a condition on a header cannot be followed; empty: it can.
func headerReason(name string) string {
	switch lower := strings.ToLower(name); {
	case name == "":
		return "the name of a header is empty"
	case strings.Trim(lower, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
		return naming.Quote(name) + " is no name of a header; conditions on path and method are uri and method"
	case lower == "host":
		return "the host of a request is what the hosts of a VirtualService name"
	case strings.HasSuffix(lower, "-bin"):
		return naming.Quote(name) + ": gRPC matches no binary headers"
	}
	return ""
}

// expressionReason returns why a regular expression cannot be followed; empty: it can.
// Envoy's RE2 reads the syntax of Go but for some classes, reads bytes and not UTF-8, and
// refuses large programs.
func expressionReason(text string) string {
	const most = 1024 // istio's
	expression, err := syntax.Parse(text, syntax.Perl)
	switch {
	case text == "":
		return "the regular expression is empty"
	case len(text) > most:
		return fmt.Sprintf("the regular expression has %d bytes; at most %d are followed", len(text), most)
	case err != nil:
		return fmt.Sprintf("%v; it is one of RE2", err)
	case strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) || strings.Contains(text, `\x{`):
		return "Envoy compares bytes: a regular expression for it has ASCII only"
	}
	for _, class := range regexp.MustCompile(`\\[pP]\{\^?([^}]*)\}`).FindAllStringSubmatch(text, -1) {
		if name := class[1]; len(name) > 2 || name == "LC" || name == "Cn" || unicode.Categories[name] == nil {
			return "Envoy does not know the class " + naming.Quote(class[0])
		}
	}
	if n := programSize(expression.Simplify()); n > maxProgram {
		return fmt.Sprintf("the regular expression is a program of about %d steps, and Envoy accepts about %d: write several shorter ones", n, maxProgram)
	}
	return ""
}

// maxProgram is less than the default of Envoy's re2.max_program_size.error_level, 100, by
// what programSize may be wrong.
const maxProgram = 90

// programSize returns about the size of the program that RE2 makes to compare bytes.
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

// repeatedSize is programSize of what is in a loop: RE2 has most of it twice.
func repeatedSize(re *syntax.Regexp) int {
	size := ownSize(re)
	if re.Op != syntax.OpLiteral {
		size = 2*size + 1 // twice, and the way back
	}
	for _, sub := range re.Sub {
		size += repeatedSize(sub)
	}
	return size
}

// ownSize is the size of an operation without its operands.
func ownSize(re *syntax.Regexp) int {
	switch re.Op { //nolint:exhaustive // all others are one step
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
