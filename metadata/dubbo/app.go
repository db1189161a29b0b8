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
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// KindApplication is the Group.Kind of every entry of the application-level
// format: an application is a group, and holds
//
//	#mapping/<interface>    the application's word in the list of those that provide the interface
//	#metadata/<revision>    what instances of that revision provide
//	#metadata/<revision>/go the same where dubbo-go looks for it, in ZooKeeper only
//	10.0.0.1:20000          an instance
//
// A consumer that finds an instance needs the rest, so it is written before,
// in the order of the keys. The storage type is remote: the bridge answers no
// calls. A revision is owner and bridge as a mark has them, and a hash of the
// document, so that it is the same on every replica and the name says whose
// it is.
const KindApplication = "dubbo-application"

// DefaultServices is the parent of ZooKeeper that holds the applications.
const DefaultServices = "/services"

// AppRule says which application some services belong to.
type AppRule struct {
	Host        string // naming.Pattern of the service's host or native name; empty matches all
	Port        uint16 // of the service; 0 matches all
	Application string // a * stands for what the star of Host stood for
}

// The keys of what instances refer to.
const (
	keyMapping  = registry.PartPrefix + "mapping/"
	keyMetadata = registry.PartPrefix + "metadata/"
	keyGo       = "/go"
)

// An instance is what an application registers at one address.
type instance struct {
	*site              // the first of its endpoints
	protocols []spoken // by name
	revision  string
	draft     []param
}

// spoken is a protocol with the path at which it serves the interface; empty:
// at its name.
type spoken struct{ protocol, path string }

// claim is what a service claims in one application.
type claim struct {
	app       string
	documents map[string]string // by revision
	instances []instance        // by address
	index     map[string]int    // of the instances, by address
}

// claims works out what is written for a service, by application, and why the
// rest is left out.
func (o *Options) claims(s *registry.Service, form appForm) (all []*claim, interfaces []registry.Interface, left []error) {
	sites, left := o.sites(s, internal)
	for _, i := range s.Interfaces {
		if err := cmp.Or(checkInterface(i), form.checkMapping(i.Name)); err != nil {
			left = append(left, err)
			continue
		}
		interfaces = append(interfaces, i)
	}
	if len(interfaces) == 0 {
		return nil, nil, left
	}
	byApp := make(map[string]*claim)
	host, port := splitName(s.Name)
	rule, ruled := o.applicationOf(host, port)
	for i := range sites {
		app := rule
		if !ruled {
			app = cmp.Or(sites[i].application, kubernetesName(host))
		}
		c := byApp[app]
		if c == nil {
			if err := checkApplication(app); err != nil {
				left = append(left, fmt.Errorf("endpoint %s: %w", sites[i].endpoint.Address(), err))
				continue
			}
			c = &claim{app: app, documents: make(map[string]string), index: make(map[string]int, len(sites))}
			byApp[app] = c
		}
		c.add(&sites[i])
	}
	for _, app := range slices.Sorted(maps.Keys(byApp)) {
		c := byApp[app]
		o.finish(c, interfaces)
		all = append(all, c)
	}
	return all, interfaces, left
}

// add takes an endpoint in: several protocols at one address are one instance.
func (c *claim) add(st *site) {
	s := spoken{st.protocol, st.endpoint.URLPath}
	if i, ok := c.index[st.address]; ok {
		in := &c.instances[i]
		in.protocols = append(in.protocols, s)
		slices.SortFunc(in.protocols, func(a, b spoken) int { return cmp.Compare(a.protocol, b.protocol) })
		return
	}
	c.index[st.address] = len(c.instances)
	c.instances = append(c.instances, instance{site: st, protocols: []spoken{s}})
}

// finish gives every instance its revision. Instances that provide the same
// share one.
func (o *Options) finish(c *claim, interfaces []registry.Interface) {
	type document struct {
		weight               uint32
		protocols, mark, tag string
	}
	known := make(map[document]string) // revisions by what distinguishes documents
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

var errNoApplication = errors.New("no application: name one by a rule of names")

// applicationOf returns the application of the first rule that fits a service,
// false where none does.
func (o *Options) applicationOf(host string, port uint16) (string, bool) {
	for _, r := range o.Applications {
		if name, ok := r.name(host, port); ok {
			return name, true
		}
	}
	return "", false
}

// kubernetesName returns the name of a Kubernetes service by its host, which
// is <name>.<namespace>.svc. and a domain; empty for other hosts.
func kubernetesName(host string) string {
	if labels := strings.Split(host, "."); len(labels) > 2 && labels[2] == "svc" {
		return labels[0]
	}
	return ""
}

func (r AppRule) name(host string, port uint16) (string, bool) {
	if r.Port != 0 && r.Port != port {
		return "", false
	}
	if r.Host == "" {
		return r.Application, true
	}
	p, err := naming.ParsePattern(r.Host)
	if err != nil {
		return "", false
	}
	star, ok := p.Capture(host)
	return strings.ReplaceAll(r.Application, "*", star), ok
}

// maxApplication is what Dubbo itself takes.
const maxApplication = 200

// checkApplication takes the names that Dubbo takes. Others could be no word
// of a mapping or no parent.
func checkApplication(app string) error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	switch {
	case app == "":
		return errNoApplication
	case app == "." || app == ".." || len(app) > maxApplication || strings.Trim(app, allowed) != "":
		return fmt.Errorf("application %s: Dubbo takes letters, digits and - _ . alone", naming.Quote(app))
	case app == "config" || app == "mapping" || app == "metadata":
		return fmt.Errorf("application %q %w", app, errReserved)
	}
	return nil
}

// An appForm renders what a claim holds.
type appForm interface {
	group(app string) registry.Group
	instance(in *instance, app, distinction string) (registry.Entry, error)
	documents(app, revision, text string) []registry.Entry
	checkMapping(iface string) error
}

// encodeApps is Codec.Encode for a form.
func (o *Options) encodeApps(s *registry.Service, form appForm) ([]registry.Entry, error) {
	var entries []registry.Entry
	claims, interfaces, left := o.claims(s, form)
	d := distinction(s)
	for _, c := range claims {
		part, err := renderApp(c, d, interfaces, form)
		entries = append(entries, part...)
		left = append(left, err...)
	}
	return metadata.Encoded(s, registry.Sorted(entries), left) //nolint:wrapcheck // the error names the service
}

func renderApp(c *claim, distinction string, interfaces []registry.Interface, form appForm) (entries []registry.Entry, left []error) {
	used := make(map[string]bool)
	var before *instance
	for i := range c.instances {
		in := &c.instances[i]
		if before != nil && before.labels == in.labels {
			in.draft = before.draft
		} else {
			in.draft = in.labels.draft(
				param{key: metaStorage, value: storageRemote},
				param{key: metaEndpoints, rank: rankEndpoints},
				param{key: metaRevision, rank: rankRevision})
		}
		before = in
		e, err := form.instance(in, c.app, distinction)
		if err != nil {
			left = append(left, err)
		}
		if e.Key != "" {
			entries = append(entries, e)
			used[in.revision] = true
		}
	}
	if len(entries) == 0 {
		return nil, left
	}
	for revision, text := range c.documents {
		if !used[revision] {
			continue
		}
		entries = append(entries, form.documents(c.app, revision, text)...)
	}
	names := make(map[string]bool)
	for _, i := range interfaces {
		if !names[i.Name] {
			names[i.Name] = true
			entries = append(entries, registry.Entry{Group: form.group(c.app), Key: keyMapping + i.Name, Value: c.app})
		}
	}
	return entries, left
}

// distinction is what distinguishes instances of one application and address
// that several services provide: nothing for the services of a mesh, of which
// each has its addresses for itself.
func distinction(s *registry.Service) string {
	if _, err := naming.ParseHostAddress(string(s.Name)); err == nil {
		return ""
	}
	return metadata.Fingerprint(string(s.Name), distinctionLen)
}

const distinctionLen = 8

// The metadata of an instance that has a meaning.
const (
	metaEndpoints = "dubbo.endpoints"
	metaRevision  = "dubbo.metadata.revision"
	metaStorage   = "dubbo.metadata.storage-type"
	metaService   = "dubbo.metadata-service.url-params"

	storageRemote = "remote"
	noRevision    = "0" // of an instance that provides nothing, such as a consumer's
)

// A port is one element of dubbo.endpoints.
type port struct {
	Port     int    `json:"port"`
	Protocol string `json:"protocol"`
}

// metadataOf returns the metadata of an instance within a limit of bytes, in
// key order, and the keys of what found no room.
func (in *instance) metadataOf(limit int) (params []param, dropped []string, err error) {
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

// tooMuch is the note about metadata that found no room.
func (in *instance) tooMuch(limit int, dropped []string) error {
	return tooMuch(in.protocols[0].protocol+"://"+in.address, limit, dropped)
}
