package conformance

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// ServiceEntries returns the fixture of a target that keeps each group as a ServiceEntry in a
// namespace. Entries of the suite are its endpoints. The entry of the group itself is written
// with the first endpoint and deleted with the last.
func ServiceEntries(target registry.Target, owner, namespace string) Fixture {
	s := serviceEntries{Target: target, owner: metadata.OwnerMark(owner), namespace: namespace, mark: metadata.NewMark(owner, "b").String()}
	return Fixture{
		Target: s, Owner: s.owner, Group: s.group, Entry: s.entry,
		Hostile: func(text string) registry.Entry {
			return s.endpoint(0, serviceentry.Endpoint{Address: "10.0.0.1" + text, Port: 1, Labels: map[string]string{"text": text}})
		},
	}
}

type serviceEntries struct {
	registry.Target

	owner, namespace, mark string
}

func (s serviceEntries) group(n int) registry.Group {
	return registry.Group{Kind: serviceentry.Kind, Namespace: s.namespace, Name: fmt.Sprintf("g%d.zk.bridge.internal", n)}
}

func (s serviceEntries) entry(n, i, v int) registry.Entry {
	return s.endpoint(n, serviceentry.Endpoint{
		Address: fmt.Sprintf("10.%d.%d.%d", n, i/256, i%256), Port: 20880, Weight: uint32(v) + 1, //nolint:gosec // small
		Labels: map[string]string{"version": fmt.Sprint("v", v)}, Locality: "eu/a",
	})
}

func (s serviceEntries) endpoint(n int, e serviceentry.Endpoint) registry.Entry {
	return registry.Entry{Group: s.group(n), Key: net.JoinHostPort(e.Address, strconv.FormatUint(uint64(e.Port), 10)), Value: metadata.JSON(e)}
}

func (s serviceEntries) head(group registry.Group) registry.Entry {
	return registry.Entry{Group: group, Key: serviceentry.HeaderKey, Value: metadata.JSON(serviceentry.Header{
		Host: group.Name, VIP: "", Port: serviceentry.Port{Number: 50051, Name: "grpc-tri", Protocol: "GRPC"},
		Labels:      map[string]string{serviceentry.LabelRegistry: "zk"},
		Annotations: map[string]string{serviceentry.AnnotationMark: s.mark, serviceentry.AnnotationName: "providers:" + group.Name + "::"},
		Keys:        []string{"providers:" + group.Name + "::"},
	})}
}

// Capabilities implements registry.Target. It removes Watcher, which would read what Read leaves out.
func (s serviceEntries) Capabilities() registry.Capabilities {
	c := s.Target.Capabilities()
	c.Watcher = nil
	return c
}

// Read implements registry.Target.
func (s serviceEntries) Read(ctx context.Context, group registry.Group) ([]registry.Stored, error) {
	held, err := s.Target.Read(ctx, group)
	return slices.DeleteFunc(held, func(h registry.Stored) bool { return h.Key == serviceentry.HeaderKey }), err
}

// Write implements registry.Target.
func (s serviceEntries) Write(ctx context.Context, c registry.Change) error {
	head := s.head(c.Group)
	held, err := s.Target.Read(ctx, c.Group)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(held, func(h registry.Stored) bool { return h.Key == serviceentry.HeaderKey })
	switch {
	case i < 0 && len(c.Want) > 0:
		c.Put = append([]registry.Write{{New: head}}, c.Put...)
	case i >= 0 && len(c.Want) == 0 && !strings.Contains(held[i].Value, "nobody"):
		c.Delete = append([]registry.Stored{held[i]}, c.Delete...)
	}
	if len(c.Want) > 0 {
		c.Want = append([]registry.Entry{head}, c.Want...)
	}
	return s.Target.Write(ctx, c)
}
