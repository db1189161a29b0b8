package routes

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-bridge/xds-bridge/naming"
)

// Type is the type URL of routes.
const Type = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"

// Resource returns the name of the resource with the routes of a host address, as a
// proxyless client requests it.
func Resource(a naming.HostAddress) string {
	return naming.Cluster{Direction: naming.Outbound, Port: a.Port, Host: a.Host}.String()
}

// maxRegexp bounds the length of a regular expression.
const maxRegexp = 4 << 10

// Decode decodes a RouteConfiguration. With an error it returns the name if that could be
// read.
func Decode(data []byte) (string, *Table, error) {
	var c routev3.RouteConfiguration
	if err := proto.Unmarshal(data, &c); err != nil {
		return "", nil, fmt.Errorf("routes: %w", err)
	}
	id, err := naming.ParseCluster(c.GetName())
	if err != nil {
		return c.GetName(), nil, fmt.Errorf("routes: %w", err)
	}
	t := &Table{Host: id.HostAddress()}
	host := virtualHostOf(&c, t.Host)
	if host == nil {
		return c.GetName(), nil, fmt.Errorf("routes: %s: no virtual host for this address", naming.Quote(c.GetName()))
	}
	for i, r := range host.GetRoutes() {
		name := r.GetName()
		if name == "" {
			name = fmt.Sprintf("route %d", i+1)
		}
		out, err := decodeRoute(r)
		if err != nil {
			t.Left = append(t.Left, naming.Quote(name)+": "+err.Error())
			continue
		}
		t.Routes = append(t.Routes, out)
	}
	return c.GetName(), t, nil
}

// virtualHostOf returns the virtual host with an address among its domains, or else the one
// for all domains, or else nil.
func virtualHostOf(c *routev3.RouteConfiguration, a naming.HostAddress) *routev3.VirtualHost {
	var all *routev3.VirtualHost
	for _, h := range c.GetVirtualHosts() {
		for _, domain := range h.GetDomains() {
			switch domain {
			case a.Host, a.String():
				return h
			case "*":
				all = h
			}
		}
	}
	return all
}

// decodeRoute decodes a route. It fails if a Route cannot express it.
func decodeRoute(r *routev3.Route) (Route, error) {
	out := Route{Name: strings.Clone(r.GetName())}
	var err error
	if out.Match, err = decodeMatch(r.GetMatch()); err != nil {
		return out, err
	}
	action := r.GetRoute()
	if action == nil {
		return out, errors.New("leads to no cluster: a redirect or a response of the proxy itself")
	}
	switch to := action.GetClusterSpecifier().(type) {
	case *routev3.RouteAction_Cluster:
		err = out.addCluster(to.Cluster, 1)
	case *routev3.RouteAction_WeightedClusters:
		for _, c := range to.WeightedClusters.GetClusters() {
			err = errors.Join(err, out.addCluster(c.GetName(), c.GetWeight().GetValue()))
		}
	default:
		err = errors.New("leads to a cluster that the request names")
	}
	if err == nil && len(out.Clusters) == 0 {
		err = errors.New("leads to no cluster")
	}
	return out, err
}

func (r *Route) addCluster(cluster string, weight uint32) error {
	id, err := naming.ParseCluster(cluster)
	if err != nil {
		return err
	}
	r.Clusters = append(r.Clusters, Share{Cluster: id, Weight: weight})
	return nil
}

func decodeMatch(m *routev3.RouteMatch) (Match, error) {
	var out Match
	if len(m.GetQueryParameters()) > 0 || m.GetRuntimeFraction() != nil ||
		len(m.GetDynamicMetadata()) > 0 || m.GetTlsContext() != nil {
		return out, errors.New("a condition on something other than path and headers")
	}
	var err error
	if out.Path, err = decodePath(m); err != nil {
		return out, err
	}
	for _, h := range m.GetHeaders() {
		header, err := decodeHeader(h)
		if err != nil {
			return out, err
		}
		out.Headers = append(out.Headers, header)
	}
	return out, nil
}

func decodePath(m *routev3.RouteMatch) (Text, error) {
	fold := m.GetCaseSensitive() != nil && !m.GetCaseSensitive().GetValue()
	var re *regexp.Regexp
	var err error
	switch p := m.GetPathSpecifier().(type) {
	case nil:
	case *routev3.RouteMatch_Prefix:
		return Text{Prefix: strings.Clone(p.Prefix), Fold: fold}, nil
	case *routev3.RouteMatch_Path:
		return Text{Exact: strings.Clone(p.Path), Fold: fold}, nil
	case *routev3.RouteMatch_SafeRegex:
		re, err = compileExpression(p.SafeRegex.GetRegex())
	case *routev3.RouteMatch_PathSeparatedPrefix:
		re, err = compileExpression(regexp.QuoteMeta(p.PathSeparatedPrefix) + "(/.*)?")
	default:
		err = errors.New("unsupported kind of condition on the path")
	}
	return Text{Regexp: re}, err
}

func decodeHeader(h *routev3.HeaderMatcher) (Header, error) {
	out := Header{Name: strings.ToLower(h.GetName()), Not: h.GetInvertMatch()}
	var err error
	switch m := h.GetHeaderMatchSpecifier().(type) {
	case *routev3.HeaderMatcher_StringMatch:
		out.Text, err = decodeText(m.StringMatch)
	case *routev3.HeaderMatcher_PresentMatch:
		out.Present, out.Not = true, out.Not == m.PresentMatch
	case nil:
		out.Present = true
	default:
		err = errors.New("unsupported kind of condition")
	}
	if err != nil {
		return out, fmt.Errorf("header %s: %w", naming.Quote(h.GetName()), err)
	}
	return out, nil
}

func decodeText(m *matcherv3.StringMatcher) (Text, error) {
	out := Text{Fold: m.GetIgnoreCase()}
	var value string
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		out.Exact, value = strings.Clone(p.Exact), p.Exact
	case *matcherv3.StringMatcher_Prefix:
		out.Prefix, value = strings.Clone(p.Prefix), p.Prefix
	case *matcherv3.StringMatcher_Suffix:
		out.Suffix, value = strings.Clone(p.Suffix), p.Suffix
	case *matcherv3.StringMatcher_Contains:
		out.Contains, value = strings.Clone(p.Contains), p.Contains
	case *matcherv3.StringMatcher_SafeRegex:
		re, err := compileExpression(p.SafeRegex.GetRegex())
		return Text{Regexp: re}, err
	}
	if value == "" {
		return out, errors.New("an empty or unsupported condition")
	}
	return out, nil
}

func compileExpression(s string) (*regexp.Regexp, error) {
	if len(s) > maxRegexp {
		return nil, fmt.Errorf("a regular expression of %d bytes, at most %d", len(s), maxRegexp)
	}
	re, err := regexp.Compile("^(?:" + s + ")$")
	if err != nil {
		return nil, fmt.Errorf("regular expression: %w", err)
	}
	return re, nil
}
