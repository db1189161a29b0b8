package dubbo

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// KindApplication is the Group.Kind of every entry of the application-level format. An
// application is a group with the following entries:
//
//	#mapping/<interface>    the application, as an element of the list of those that provide the interface
//	#metadata/<revision>    the document of a revision: what its instances provide
//	#metadata/<revision>/go the same document where dubbo-go looks for it, only in ZooKeeper
//	10.0.0.1:20000          an instance
//
// Consumers of an instance depend on the other entries. These are therefore written
// first, in the order of their keys. The storage type is remote, because the bridge
// answers no calls. A revision consists of owner and bridge as in a mark, and a hash of
// the document. So it is the same on every replica and names its owner.
const KindApplication = "dubbo-application"

// DefaultServices is the default parent of the applications in ZooKeeper.
const DefaultServices = "/services"

// The keys of the entries that instances refer to.
const (
	keyMapping  = registry.PartPrefix + "mapping/"
	keyMetadata = registry.PartPrefix + "metadata/"
	keyGo       = "/go"
)

// An instance is the registration of an application at one address.
type instance struct {
	*site                    // that of its first endpoint
	protocols []protocolPath // by name
	revision  string
	draft     []param
}

// protocolPath is a protocol and the URL path of the interface in that protocol. An empty
// path is the interface's name.
type protocolPath struct{ protocol, path string }

// appClaim is the instances and documents that a service claims in one application.
type appClaim struct {
	app       string
	documents map[string]string // by revision
	instances []instance        // by address
	index     map[string]int    // of the instances, by address
}

// claims returns the claims of a service, by application, and why other parts of it are
// left out.
func (o *options) claims(
	s *registry.Service, form appForm,
) (all []*appClaim, interfaces []registry.Interface, omissions []error) {
	sites, omissions := o.sites(s, isInternal)
	for _, i := range s.Interfaces {
		if err := cmp.Or(checkInterface(i), form.checkMapping(i.Name)); err != nil {
			omissions = append(omissions, err)
			continue
		}
		interfaces = append(interfaces, i)
	}
	if len(interfaces) == 0 {
		return nil, nil, omissions
	}
	byApp := make(map[string]*appClaim)
	host, port := splitName(s.Name)
	app, byRule := o.applicationByRule(host, port)
	kubernetes := kubernetesName(host)
	for i := range sites {
		if !byRule {
			app = cmp.Or(sites[i].application, kubernetes)
		}
		c := byApp[app]
		if c == nil {
			if err := checkApplication(app); err != nil {
				omissions = append(omissions, fmt.Errorf("endpoint %s: %w", sites[i].endpoint.Address(), err))
				continue
			}
			c = &appClaim{app: app, documents: make(map[string]string), index: make(map[string]int, len(sites))}
			byApp[app] = c
		}
		c.add(&sites[i])
	}
	for _, app := range slices.Sorted(maps.Keys(byApp)) {
		c := byApp[app]
		o.assignRevisions(c, interfaces)
		all = append(all, c)
	}
	return all, interfaces, omissions
}

// add adds an endpoint. Several protocols at one address are one instance.
func (c *appClaim) add(st *site) {
	s := protocolPath{st.protocol, st.endpoint.URLPath}
	if i, ok := c.index[st.address]; ok {
		in := &c.instances[i]
		in.protocols = append(in.protocols, s)
		slices.SortFunc(in.protocols, func(a, b protocolPath) int { return cmp.Compare(a.protocol, b.protocol) })
		return
	}
	c.index[st.address] = len(c.instances)
	c.instances = append(c.instances, instance{site: st, protocols: []protocolPath{s}})
}

// assignRevisions sets the revision of every instance. Instances with equal documents
// share a revision.
func (o *options) assignRevisions(c *appClaim, interfaces []registry.Interface) {
	type document struct {
		weight               uint32
		protocols, mark, tag string
	}
	known := make(map[document]string) // revisions
	for i := range c.instances {
		in := &c.instances[i]
		d := document{weight: in.weight(), mark: in.mark, tag: in.tag}
		for _, p := range in.protocols {
			d.protocols += p.protocol + "/" + p.path + "\n"
		}
		if known[d] == "" {
			revision, text := o.document(c.app, interfaces, in)
			known[d], c.documents[revision] = revision, text
		}
		in.revision = known[d]
	}
}

var errNoApplication = errors.New("no application: name it by a rule in names")

// applicationByRule returns the application of the first rule that matches a service;
// false if none does.
func (o *options) applicationByRule(host string, port uint16) (string, bool) {
	for _, r := range o.Names {
		if name, ok := applyRule(r, host, port); ok {
			return name, true
		}
	}
	return "", false
}

// kubernetesName returns the service name in a Kubernetes host,
// <name>.<namespace>.svc.<domain>. It is empty for other hosts.
func kubernetesName(host string) string {
	if labels := strings.Split(host, "."); len(labels) > 2 && labels[2] == "svc" {
		return labels[0]
	}
	return ""
}

// applyRule returns the application that a rule names for a host and port; false if the
// rule names none or does not match.
func applyRule(r format.Name, host string, port uint16) (string, bool) {
	if r.Service == "" || r.Port != 0 && r.Port != port {
		return "", false
	}
	if r.Host == "" {
		return r.Service, true
	}
	p, err := naming.ParsePattern(r.Host)
	if err != nil {
		return "", false
	}
	star, ok := p.Capture(host)
	return strings.ReplaceAll(r.Service, "*", star), ok
}

// maxApplication is Dubbo's own limit.
const maxApplication = 200

// checkApplication refuses names that Dubbo refuses, because they cannot be in a mapping
// or cannot be a znode.
func checkApplication(app string) error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	switch {
	case app == "":
		return errNoApplication
	case app == "." || app == ".." || len(app) > maxApplication || strings.Trim(app, allowed) != "":
		return fmt.Errorf("application %s: Dubbo accepts only the signs - _ . and letters and digits", naming.Quote(app))
	case app == "config" || app == "mapping" || app == "metadata":
		return fmt.Errorf("application %q %w", app, errReserved)
	}
	return nil
}

// An appForm defines how a registry stores applications.
type appForm interface {
	group(app string) registry.Group
	instance(in *instance, app, distinction string) (registry.Entry, error)
	documents(app, revision, text string) []registry.Entry
	checkMapping(iface string) error
}

// encodeApps implements Codec.Encode for a form.
func (o *options) encodeApps(s *registry.Service, form appForm) ([]registry.Entry, error) {
	var entries []registry.Entry
	claims, interfaces, omissions := o.claims(s, form)
	d := distinction(s)
	for _, c := range claims {
		part, omitted := encodeApp(c, d, interfaces, form)
		entries = append(entries, part...)
		omissions = append(omissions, omitted...)
	}
	return metadata.Encoded(registry.Sorted(entries), omissions)
}

func encodeApp(
	c *appClaim, distinction string, interfaces []registry.Interface, form appForm,
) (entries []registry.Entry, omissions []error) {
	used := make(map[string]bool)
	var previous *instance
	for i := range c.instances {
		in := &c.instances[i]
		if previous != nil && previous.labels == in.labels {
			in.draft = previous.draft
		} else {
			in.draft = in.labels.draft(
				param{key: metaStorage, value: storageRemote},
				param{key: metaEndpoints, rank: rankEndpoints},
				param{key: metaRevision, rank: rankRevision})
		}
		previous = in
		e, err := form.instance(in, c.app, distinction)
		if err != nil {
			omissions = append(omissions, err)
		}
		if e.Key != "" {
			entries = append(entries, e)
			used[in.revision] = true
		}
	}
	if len(entries) == 0 {
		return nil, omissions
	}
	for revision, text := range c.documents {
		if !used[revision] {
			continue
		}
		entries = append(entries, form.documents(c.app, revision, text)...)
	}
	mapped := make(map[string]bool)
	for _, i := range interfaces {
		if !mapped[i.Name] {
			mapped[i.Name] = true
			entries = append(entries, registry.Entry{Group: form.group(c.app), Key: keyMapping + i.Name, Value: c.app})
		}
	}
	return entries, omissions
}

// distinction returns a text that distinguishes the instances of several services at one
// address of an application. It is empty for services of a mesh, which do not share
// addresses.
func distinction(s *registry.Service) string {
	if _, err := naming.ParseHostAddress(string(s.Name)); err == nil {
		return ""
	}
	return metadata.Fingerprint(string(s.Name), distinctionLen)
}

const distinctionLen = 8

// The metadata of an instance that the codec uses.
const (
	metaEndpoints = "dubbo.endpoints"
	metaRevision  = metadata.KeyDubboRevision
	metaStorage   = "dubbo.metadata.storage-type"

	metaOldRevision = "dubbo.exported-services.revision"

	metaService = "dubbo.metadata-service.url-params"

	storageRemote = "remote"
	noRevision    = "0" // of an instance that provides nothing, such as that of a consumer
)

// A port is an element of dubbo.endpoints.
type port struct {
	Port     int    `json:"port"`
	Protocol string `json:"protocol"`
}

// metadataWithin returns the metadata of an instance within a limit of bytes, sorted by
// key, and the keys that are left out. It fails if required metadata exceed the limit.
func (in *instance) metadataWithin(limit int) (params []param, dropped []string, err error) {
	ports := make([]byte, 0, 64)
	for i, p := range in.protocols {
		ports = append(append(ports, "[,"[min(i, 1)]), `{"port":`...)
		ports = strconv.AppendUint(ports, uint64(in.endpoint.Port), 10)
		ports = append(metadata.AppendText(append(ports, `,"protocol":`...), p.protocol), '}')
	}
	v := in.values()
	v[rankEndpoints], v[rankRevision] = string(append(ports, ']')), in.revision
	params, dropped, err = fit(in.params(in.draft, &v), limit)
	if err != nil {
		return nil, nil, fmt.Errorf("endpoint %s: %w", in.address, err)
	}
	return params, dropped, nil
}

// droppedError returns an error that names the metadata that is left out, or nil if none
// is.
func (in *instance) droppedError(limit int, dropped []string) error {
	return droppedError(in.protocols[0].protocol+"://"+in.address, limit, dropped)
}
