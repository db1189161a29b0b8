package instance

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

var errNameless = &metadata.Omission{
	Reason: "has neither an application nor a rule that names it; add a rule with a service to names",
}

// nameOf returns the name of a service: the name of the first rule that matches, or the
// application, inserted into the pattern.
func (c *codec) nameOf(s *registry.Service) (string, error) {
	name := c.plainName(s)
	if name == "" {
		return "", errNameless
	}
	before, after, _ := strings.Cut(c.o.Service, "*")
	name = before + name + after
	return name, checkPart(name)
}

func (c *codec) plainName(s *registry.Service) string {
	native := nativeOf(s)
	for _, r := range c.rules {
		if r.Service == "" || r.Port != 0 && r.Port != native.port {
			continue
		}
		if star, matches := native.match(r.host); matches {
			return strings.ReplaceAll(r.Service, "*", star)
		}
	}
	return s.Application
}

// parseName returns the plain name in the name of a service; false if the pattern does
// not match.
func (c *codec) parseName(service string) (string, bool) {
	before, after, _ := strings.Cut(c.o.Service, "*")
	if len(service) <= len(before)+len(after) ||
		!strings.HasPrefix(service, before) || !strings.HasSuffix(service, after) {
		return "", false
	}
	return service[len(before) : len(service)-len(after)], true
}

// native is the name of a service in its source.
type native struct {
	name string
	port uint16 // 0 unless the service is of a mesh
}

func nativeOf(s *registry.Service) native {
	if a, err := naming.ParseHostAddress(string(s.Name)); err == nil {
		return native{a.Host, a.Port}
	}
	if s.Application != "" {
		return native{name: s.Application}
	}
	return native{name: string(s.Name)[strings.LastIndexByte(string(s.Name), '/')+1:]}
}

// match reports whether a pattern matches, and returns the text of its star. Case
// matters unless the name is a host.
func (n native) match(p naming.Pattern) (string, bool) {
	if n.port != 0 {
		return p.Capture(n.name)
	}
	return p.CaptureName(n.name)
}

// maxPart is the maximum length of a name.
const maxPart = 255

var errPart = errors.New("cannot be a service: it is empty, too long or has a character that consumers cannot request")

// checkPart refuses a name that cannot be a znode or part of a consumer's address.
func checkPart(s string) error {
	bad := func(r rune) bool { return r <= ' ' || !unicode.IsPrint(r) || strings.ContainsRune(`/\%?#@,;"`, r) }
	if s == "" || s == "." || s == ".." || len(s) > maxPart || !utf8.ValidString(s) || strings.ContainsFunc(s, bad) {
		return fmt.Errorf("name %s %w", naming.Quote(s), errPart)
	}
	return nil
}
