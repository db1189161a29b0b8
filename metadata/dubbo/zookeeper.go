package dubbo

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// ZooKeeper is the interface-level format as Dubbo stores it in ZooKeeper:
//
//	/dubbo/<interface>/providers/<URLEncoder(url)>      no data
//	url = tri://10.0.0.1:20000/<interface>?category=providers&interface=<interface>&side=provider
//	      [&version=][&group=][&weight=][&application=][&mesh…=]&timestamp=<stamp>&xdsb=<mark>      sorted by name
//
// The name of the node contains everything. Consumers match interface, version and group.
// Java and dubbo-go both write category and side. Dynamic, methods and pid are left out,
// because no consumer depends on them. dubbo-go distinguishes a provider's new node from
// the old one by the timestamp, see metadata.Stamp.
//
// The value of an entry is the decoded URL, and the key has the form
// tri://10.0.0.1:20000?group=g&version=1.0.
type ZooKeeper struct{ o options }

// maxURL is the limit of the metadata of one provider in ZooKeeper. The names of a
// thousand providers must fit into a response of 1 MiB.
const maxURL = 2048

// NewZooKeeper returns the codec of the format in ZooKeeper. The error names every
// invalid option.
func NewZooKeeper(o Options) (*ZooKeeper, error) {
	all, err := withDefaults(o, Kind, maxURL)
	if err != nil {
		return nil, err
	}
	return &ZooKeeper{all}, nil
}

// Encode implements metadata.Codec.
func (z *ZooKeeper) Encode(s *registry.Service) ([]registry.Entry, error) {
	return z.o.encode(s, z)
}

// Guessed reports whether an entry came from a mesh and no rule names its protocol,
// which a mesh does not report.
func (z *ZooKeeper) Guessed(e registry.Entry) bool {
	host := metadata.HostOf(e)
	if host == "" || e.Group != z.group(e.Group.Name) {
		return false
	}
	host, port := splitName(registry.Name(host))
	return protocolByRule(z.o.rulesOf(host), port) == ""
}

// Dependencies implements metadata.Codec: the entries are complete.
func (*ZooKeeper) Dependencies([]registry.Entry) []metadata.Ref { return nil }

// Decode implements metadata.Codec.
func (*ZooKeeper) Decode(entries, _ []registry.Entry) ([]*registry.Service, []metadata.DecodeError) {
	return decode(entries, decodeNode)
}

// entry implements form.
func (z *ZooKeeper) entry(p *provider) (registry.Entry, error) {
	v := p.values()
	params, dropped, err := fit(p.params(p.draft, &v), z.o.limit)
	if err != nil {
		return registry.Entry{}, fmt.Errorf("%s: %w", p.iface.Name, err)
	}
	url, stamp := appendURL(p.buffers.text[:0], p, params)
	metadata.PutStamp(url, stamp)
	return registry.Entry{Group: p.group, Key: p.url + p.query, Value: string(url)},
		droppedError(p.url, z.o.limit, dropped)
}

func decodeNode(e registry.Entry) (*decodedProvider, error) {
	value := e.Value
	if !strings.Contains(value, "://") {
		value, _ = unescapeNode(value) // Entry keeps names that are not canonical
	}
	u, err := parseURL(value)
	if err != nil {
		return nil, err
	}
	p, err := decodeURL(u)
	if err != nil {
		return nil, err
	}
	if p.iface.Name != e.Group.Name {
		return nil, fmt.Errorf("belongs to interface %q, but is under the path of %q", p.iface.Name, e.Group.Name)
	}
	return p, nil
}

func (*ZooKeeper) own() []param { return []param{{key: metadata.StampKey, value: metadata.NoStamp}} }

func (z *ZooKeeper) groupOf(i registry.Interface) registry.Group { return z.group(i.Name) }

func (z *ZooKeeper) group(iface string) registry.Group {
	return registry.Group{Kind: Kind, Namespace: z.o.Root, Name: iface}
}

// instanceQuery returns the end of an entry's key, which distinguishes the groups and
// versions of an interface at one address.
func instanceQuery(i registry.Interface) string {
	switch {
	case i.Group != "" && i.Version != "":
		return "?group=" + i.Group + "&version=" + i.Version
	case i.Group != "":
		return "?group=" + i.Group
	case i.Version != "":
		return "?version=" + i.Version
	}
	return ""
}

// Kind returns the name of the format, which is the Kind of its groups.
func (*ZooKeeper) Kind() string { return Kind }

// Parents returns the pattern of the parents of entries, with * for one part of a path.
func (z *ZooKeeper) Parents() string { return z.o.Root + "/*/providers" }

// Parent returns the parent of a group. It fails for a name that cannot be a parent, and
// for a group of another format or root.
func (z *ZooKeeper) Parent(g registry.Group) (string, error) {
	if g != z.group(g.Name) {
		return "", fmt.Errorf("group %s is not of %s:%s", g, Kind, z.o.Root)
	}
	if g.Name == "" || g.Name == "." || g.Name == ".." {
		return "", fmt.Errorf("interface %q cannot be a znode", g.Name)
	}
	return z.o.Root + "/" + escapeNode(g.Name) + "/providers", nil
}

// Group returns the group of a parent; false if the parent is not of this format.
func (z *ZooKeeper) Group(parent string) (registry.Group, bool) {
	rest, ok := strings.CutPrefix(parent, z.o.Root+"/")
	if !ok {
		return registry.Group{}, false
	}
	name, ok := strings.CutSuffix(rest, "/providers")
	if !ok || name == "" || strings.Contains(name, "/") {
		return registry.Group{}, false
	}
	iface, err := unescapeNode(name)
	if err != nil {
		return registry.Group{}, false // neither consumers nor the bridge use such a name
	}
	return z.group(iface), true
}

// Rules returns the paths of the rules that dubbo-admin stores for an interface. They are
// rules of Dubbo up to 2.6, which consumers of all versions still follow. By a rule an
// operator disables a provider or sets its weight, without a change of the provider's
// URL.
func (z *ZooKeeper) Rules(iface string) []string {
	at := z.o.Root + "/" + escapeNode(iface)
	return []string{at + "/configurators", at + "/routers"}
}

// HasData reports whether nodes of this format have data, which is always false: a list
// of the names is enough.
func (*ZooKeeper) HasData() bool { return false }

// Replaces returns that a changed provider is another node.
func (*ZooKeeper) Replaces() metadata.Replacement { return metadata.Overlapping }

var errValue = errors.New("is not a value of this format")

// Node returns the name and the data of the node that stores an entry.
func (*ZooKeeper) Node(e registry.Entry) (name string, data []byte, err error) {
	if e.Value == "" || strings.Contains(e.Value, "/") && !strings.Contains(e.Value, "://") {
		return "", nil, fmt.Errorf("%.80q %w", e.Value, errValue)
	}
	if !strings.Contains(e.Value, "://") {
		return e.Value, nil, nil // kept as it was found, see Entry
	}
	return escapeNode(e.Value), nil, nil
}

// Entry returns the entry of a node and its mark. It never fails: for a node that cannot
// be decoded it returns an entry without a mark, with the name as key and value.
func (*ZooKeeper) Entry(g registry.Group, name string, _ []byte) (registry.Entry, metadata.Mark) {
	url, err := unescapeNode(name)
	if err != nil || !strings.Contains(url, "://") {
		return registry.Entry{Group: g, Key: name, Value: name}, metadata.Mark{}
	}
	e := registry.Entry{Group: g, Key: url, Value: url}
	u, err := splitURL(url)
	if err != nil {
		return e, metadata.Mark{}
	}
	if strings.Count(u.query, "&") >= maxParams {
		return e, metadata.Mark{}
	}
	// A target lists many nodes, so only these parameters are decoded.
	var iface, defaults registry.Interface
	var text string
	for k, v := range paramsOf(u.query) {
		switch unescapeParam(k) {
		case paramVersion:
			iface.Version = unescapeParam(v)
		case paramGroup:
			iface.Group = unescapeParam(v)
		case defaultPrefix + paramVersion:
			defaults.Version = unescapeParam(v)
		case defaultPrefix + paramGroup:
			defaults.Group = unescapeParam(v)
		case metadata.MarkKey:
			text = unescapeParam(v)
		}
	}
	iface.Version, iface.Group = cmp.Or(iface.Version, defaults.Version), cmp.Or(iface.Group, defaults.Group)
	e.Key = u.protocol + "://" + hostPort(u.host, u.port) + instanceQuery(iface)
	mark, err := metadata.ParseMark(text)
	if err != nil {
		mark = metadata.Mark{}
	}
	return e, mark
}

// escapeNode encodes the name of a node like Dubbo, with java.net.URLEncoder.
func escapeNode(s string) string {
	escaped := 0
	for i := range len(s) {
		if !nodeByte(s[i]) {
			escaped++
		}
	}
	if escaped == 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 2*escaped)
	for i := range len(s) {
		switch c := s[i]; {
		case nodeByte(c):
			b.WriteByte(c)
		case c == ' ':
			b.WriteByte('+')
		default:
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
		}
	}
	return b.String()
}

// nodeByte reports whether URLEncoder keeps a byte.
func nodeByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '.' || c == '-' || c == '_' || c == '*'
}

var errNode = errors.New("is not a name that Dubbo writes")

// unescapeNode undoes escapeNode. It fails for a name that escapeNode does not return,
// and then still returns the text if it can be decoded.
func unescapeNode(s string) (string, error) {
	var b strings.Builder
	b.Grow(len(s))
	canonical := true
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case nodeByte(c):
		case c == '+':
			c = ' '
		case c == '%':
			var ok bool
			if c, ok = unescapeByte(s[i+1:]); !ok {
				return "", fmt.Errorf("%.80q %w", s, errNode)
			}
			canonical = canonical && c != ' ' && !nodeByte(c) && s[i+1] < 'a' && s[i+2] < 'a'
			i += 2
		default:
			canonical = false
		}
		b.WriteByte(c)
	}
	if !canonical {
		return b.String(), fmt.Errorf("%.80q %w", s, errNode)
	}
	return b.String(), nil
}

// unescapeByte returns the byte of the two hexadecimal digits that begin s.
func unescapeByte(s string) (byte, bool) {
	if len(s) < 2 {
		return 0, false
	}
	high, low := hexDigit(s[0]), hexDigit(s[1])
	return high<<4 | low, high|low < 16
}

// hexDigit returns the value of a hexadecimal digit, and 16 for any other byte.
func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 16
}
