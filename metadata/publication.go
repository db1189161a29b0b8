package metadata

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
)

// PublicationLabel is the label of a mesh node in which dubbo-go publishes the service
// keys that it provides: a JSON object of service keys and their host addresses.
const PublicationLabel = "DUBBO_GO"

// Publication is the service keys that one client of the mesh publishes. A key is
// published, not published, or unknown.
type Publication struct {
	Client string
	Hosts  map[naming.ServiceKey]naming.HostAddress

	// Silent is set for the empty value: the client has not registered anything yet,
	// or not again since a restart. The value {} is not silent: it withdraws all keys.
	Silent bool

	// Unread is set for a value that is not such a JSON object. All keys are then
	// unknown. UnreadKeys are the keys whose address cannot be parsed.
	Unread     bool
	UnreadKeys []naming.ServiceKey
}

// PublicationError is a part of a publication that could not be parsed.
type PublicationError struct {
	Client string // the id of the client's connection
	Text   string // quoted by naming.Quote
	Reason string
}

// Error returns one line without control characters.
func (f PublicationError) Error() string {
	return "client " + naming.Quote(f.Client) + ": " + f.Text + ": " + f.Reason
}

// Claim is one key at one address, published by one client.
type Claim struct {
	Key     naming.ServiceKey
	Address naming.HostAddress
	Client  string
	Without Hosts // the endpoints of the address that are known not to provide the key
}

// Hosts is a set of hosts of endpoints, sorted and separated by commas.
type Hosts string

// HostsOf returns a set of hosts.
func HostsOf(hosts iter.Seq[string]) Hosts { return Hosts(strings.Join(slices.Sorted(hosts), ",")) }

// All returns the hosts.
func (h Hosts) All() iter.Seq[string] {
	if h == "" {
		return func(func(string) bool) {}
	}
	return strings.SplitSeq(string(h), ",")
}

// intersect returns the hosts that both sets have.
func (h Hosts) intersect(o Hosts) Hosts {
	if h == o || h == "" || o == "" {
		return min(h, o) // the sets are equal, or one is empty
	}
	others := make(map[string]bool)
	for host := range o.All() {
		others[host] = true
	}
	var both []string
	for host := range h.All() {
		if others[host] {
			both = append(both, host)
		}
	}
	return Hosts(strings.Join(both, ","))
}

// Claims yields the claims of the publication, in the order of their keys.
func (p Publication) Claims() iter.Seq[Claim] {
	return func(yield func(Claim) bool) {
		for _, key := range slices.SortedFunc(maps.Keys(p.Hosts), naming.ServiceKey.Compare) {
			if !yield(Claim{Key: key, Address: p.Hosts[key], Client: p.Client}) {
				return
			}
		}
	}
}

// ParsePublication parses the value of PublicationLabel. A part that cannot be parsed
// has an error and does not affect the other parts. If the value is not a JSON object,
// the publication is Unread.
func ParsePublication(client, value string) (Publication, []PublicationError) {
	return parsePublication(client, value, naming.ParseServiceKey)
}

// ParseLegacyPublication is ParsePublication for keys in the forms of
// naming.ParseLegacyServiceKey.
func ParseLegacyPublication(client, value string) (Publication, []PublicationError) {
	return parsePublication(client, value, naming.ParseLegacyServiceKey)
}

type keyParser func(string) (naming.ServiceKey, error)

func parsePublication(client, value string, parse keyParser) (Publication, []PublicationError) {
	p := Publication{Client: client}
	if value == "" {
		p.Silent = true
		return p, nil
	}
	pairs, err := jsonPairs(value)
	if err != nil {
		p.Unread = true
		return p, []PublicationError{{Client: client, Text: naming.Quote(value), Reason: err.Error()}}
	}
	p.Hosts = make(map[naming.ServiceKey]naming.HostAddress, len(pairs))
	var problems []PublicationError
	for _, pair := range pairs {
		if text, reason := addPair(&p, pair, parse); reason != "" {
			problems = append(problems, PublicationError{Client: client, Text: naming.Quote(text), Reason: reason})
		}
	}
	return p, problems
}

// addPair adds one pair, or returns the text that cannot be parsed and the reason.
func addPair(p *Publication, pair jsonPair, parse keyParser) (text, reason string) {
	key, err := parse(pair.key)
	if err != nil {
		return pair.key, reasonOf(err)
	}
	if key.Category != naming.Providers {
		return pair.key, "only service keys of providers are published"
	}
	if _, twice := p.Hosts[key]; twice {
		return pair.key, "published twice by one client, the first address is used"
	}
	var s string
	if json.Unmarshal(pair.value, &s) != nil {
		p.UnreadKeys = append(p.UnreadKeys, key)
		return string(pair.value), "the host address of " + pair.key + " is not a string"
	}
	address, err := naming.ParseHostAddress(s)
	if err != nil {
		p.UnreadKeys = append(p.UnreadKeys, key)
		return s, "not the host address of " + pair.key + ": " + reasonOf(err)
	}
	p.Hosts[key] = address
	return "", ""
}

func reasonOf(err error) string {
	if e, ok := errors.AsType[*naming.Error](err); ok {
		return e.Reason
	}
	return err.Error()
}

type jsonPair struct {
	key   string
	value json.RawMessage
}

// jsonPairs reads an object as pairs, because a map would lose a repeated key.
func jsonPairs(s string) ([]jsonPair, error) {
	d := json.NewDecoder(strings.NewReader(s))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	var pairs []jsonPair
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("not JSON after %d bytes", d.InputOffset())
		}
		pair := jsonPair{key: key.(string)} //nolint:forcetypeassert // keys of an object are strings
		if err := d.Decode(&pair.value); err != nil {
			return nil, fmt.Errorf("not JSON after %d bytes", d.InputOffset())
		}
		pairs = append(pairs, pair)
	}
	if _, err := d.Token(); err != nil {
		return nil, errors.New("the JSON object does not end")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object")
	}
	return pairs, nil
}
