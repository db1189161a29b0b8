package instance

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Options are the options of all formats. Documents is not used here.
type Options = format.Options

// A rule sets the name or the protocol of some services, or both.
type rule struct {
	format.Name
	host naming.Pattern // of the mesh host, or of the application or native name
}

// parseRules returns the rules in options. Names come before protocols.
func parseRules(o Options) (rules []rule, err error) {
	names := slices.Clone(o.Names)
	for _, r := range o.Protocols {
		names = append(names, format.Name{Host: r.Host, Port: r.Port, Protocol: r.Protocol})
	}
	for i, n := range names {
		host, err := naming.ParsePattern(n.Host)
		if err == nil && (n.Protocol != "" || i >= len(o.Names)) {
			err = metadata.CheckProtocol(n.Protocol)
		}
		switch {
		case err != nil && i < len(o.Names):
			return nil, fmt.Errorf("names[%d]: %w", i, err)
		case err != nil:
			return nil, fmt.Errorf("protocols[%d]: %w", i-len(o.Names), err)
		}
		rules = append(rules, rule{n, host})
	}
	return rules, nil
}

// DefaultGroup is the default group of Nacos.
const DefaultGroup = "DEFAULT_GROUP"

// newCodec returns the common part of a codec. The limit is that of the metadata of one
// instance, less Options.Reserve. The error names every invalid option.
func newCodec(form Form, o Options, limit int) (codec, error) {
	o.Root = "/" + strings.Trim(o.Root, "/")
	o.Group = cmp.Or(o.Group, DefaultGroup)
	o.Service = cmp.Or(o.Service, "*")
	rules, err := parseRules(o)
	problems := []error{metadata.CheckProtocol(o.Protocol), checkRoot(o.Root), err}
	if strings.Count(o.Service, "*") != 1 {
		problems = append(problems, fmt.Errorf("service pattern must have one * (got %q)", o.Service))
	}
	if err := errors.Join(problems...); err != nil {
		return codec{}, fmt.Errorf("%s: %w", form.Kind, err)
	}
	return codec{o: o, rules: rules, form: form, limit: limit - o.Reserve}, nil
}

func checkRoot(root string) error {
	if root == "/" {
		return nil
	}
	for part := range strings.SplitSeq(root[1:], "/") {
		if err := checkPart(part); err != nil {
			return fmt.Errorf("root: %w", err)
		}
	}
	return nil
}

// protocolOf returns the protocol of an endpoint. A rule, which an operator wrote,
// overrides what the registry reports.
func (c *codec) protocolOf(s *registry.Service, e *registry.Endpoint) string {
	name := nativeOf(s)
	port := name.port
	if port == 0 {
		port = e.Port
	}
	for _, r := range c.rules {
		if r.Protocol == "" || r.Port != 0 && r.Port != port {
			continue
		}
		if _, matches := name.match(r.host); matches {
			return r.Protocol
		}
	}
	return cmp.Or(e.Protocol, s.Protocol, c.o.Protocol)
}
