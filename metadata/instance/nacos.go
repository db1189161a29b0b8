package instance

import (
	"fmt"
	"maps"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Nacos is a plain format in Nacos:
//
//	service <name>, group DEFAULT_GROUP
//	instance {"ip":"10.0.0.1","port":8080,"weight":1,"healthy":true,"enabled":true,"ephemeral":true,
//	          "clusterName":"DEFAULT","metadata":{…,"xdsb":"<mark>"}}
//
// The value of an entry is a metadata.NacosInstance in canonical form, and the key is its
// Key. As ip, Nacos also accepts host names.
type Nacos struct{ codec }

// NewNacos returns the codec of a format in Nacos. The error names every invalid option.
func NewNacos(form NacosForm, o Options) (*Nacos, error) {
	c, err := newCodec(form.Form, o, metadata.MaxNacosMetadata)
	if err != nil {
		return nil, err
	}
	if err := metadata.CheckNacosService(c.o.Namespace, c.o.Group, "any"); err != nil {
		return nil, fmt.Errorf("%s: %w", form.Kind, err)
	}
	if form.Name == nil {
		form.Name = func(service, _ string) string { return service }
		form.Parse = func(service string) (string, bool) { return service, true }
	}
	c.nacosForm = &form
	return &Nacos{c}, nil
}

// Encode implements metadata.Codec.
func (n *Nacos) Encode(s *registry.Service) ([]registry.Entry, error) { return n.encode(s, n.entry) }

// Decode implements metadata.Codec.
func (n *Nacos) Decode(entries, _ []registry.Entry) ([]*registry.Service, []metadata.DecodeError) {
	return n.decode(entries, n.read)
}

func (n *Nacos) entry(i Instance) (registry.Entry, error) {
	if err := metadata.CheckNacosAddress(i.Ports[0].Host); err != nil {
		return registry.Entry{}, fmt.Errorf("endpoint %s: %w", i.Key(), err)
	}
	if strings.Contains(i.Ports[0].Host, ":") && n.nacosForm.IPv4 {
		return registry.Entry{}, &metadata.Omission{
			Reason: fmt.Sprintf("endpoint %s: clients of %s cannot call an IPv6 address from Nacos", i.Key(), n.form.Kind),
		}
	}
	in := metadata.NacosInstance{
		IP: i.Ports[0].Host, Port: i.Ports[0].Port, Weight: min(n.nacosForm.Scale.Of(i.Share), metadata.MaxNacosWeight),
		Enabled: true, Healthy: true, Ephemeral: true, Cluster: i.Metadata[metadata.KeyNacosCluster], Metadata: i.Metadata,
	}
	delete(in.Metadata, metadata.KeyNacosCluster)
	g := n.group(n.o.Namespace, n.o.Group, n.nacosForm.Name(i.Service, i.Ports[0].Protocol))
	if err := metadata.CheckNacosService(g.Namespace, g.Group, g.Name); err != nil {
		return registry.Entry{}, err
	}
	return registry.Entry{Group: g, Key: in.Key(), Value: in.String()}, nil
}

func (n *Nacos) read(e registry.Entry) (Instance, error) {
	in, err := metadata.ParseNacosInstance(e.Value)
	if err != nil {
		return Instance{}, err
	}
	if err := foreign(n.form.Kind, e.Group.Name, in.Metadata); err != nil {
		return Instance{}, err
	}
	i := Instance{
		Service: e.Group.Name, Ports: []Port{{Host: in.IP, Port: in.Port}},
		Share: n.nacosForm.Scale.Share(in.Weight), Health: in.Health(), Metadata: in.Metadata,
	}
	if cluster := in.ClusterAttribute(); cluster != "" {
		i.Metadata = maps.Clone(in.Metadata)
		if i.Metadata == nil {
			i.Metadata = make(map[string]string, 1)
		}
		i.Metadata[metadata.KeyNacosCluster] = cluster
	}
	if in.Weight <= 0 { // clients of Nacos skip such instances
		i.Health = registry.Disabled
	}
	return i, nil
}

// foreign returns an error that names the other format of an instance. It is nil if the
// metadata names no other format.
func foreign(kind, service string, m map[string]string) error {
	actual := ""
	switch {
	case m[metadata.KeyDubboRevision] != "":
		actual = "dubbo-application"
	case m["preserved.register.source"] == "SPRING_CLOUD":
		actual = "spring-cloud"
	case m["kind"] != "" && strings.HasSuffix(service, "."+m["kind"]):
		actual = "kratos"
	default:
		return nil
	}
	if actual == kind {
		return nil
	}
	return fmt.Errorf("is an instance of %s, not of %s", actual, kind)
}

func (n *Nacos) group(namespace, group, service string) registry.Group {
	return registry.Group{Kind: n.form.Kind, Namespace: namespace, Group: group, Name: service, Exclusive: !n.o.Join}
}

// Place implements metadata.Codec.
func (n *Nacos) Place() registry.Place {
	return registry.NewPlace(n.group(n.o.Namespace, n.o.Group, ""), n.isNamed)
}

// isNamed reports whether a service with the name is of the format.
func (n *Nacos) isNamed(service string) bool {
	name, ok := n.nacosForm.Parse(service)
	if ok {
		_, ok = n.parseName(name)
	}
	return ok
}

// GroupOf returns the group of a service; false if its name is that of another format.
func (n *Nacos) GroupOf(namespace, group, service string) (registry.Group, bool) {
	ok := n.isNamed(service)
	for _, other := range []string{"providers:", "consumers:", "routers:", "configurators:"} {
		ok = ok && !strings.HasPrefix(service, other)
	}
	return n.group(namespace, group, service), ok
}

// Foreign returns an error that names the other format of an instance. It is nil if the
// metadata names no other format.
func (n *Nacos) Foreign(service string, in metadata.NacosInstance) error {
	return foreign(n.form.Kind, service, in.Metadata)
}
