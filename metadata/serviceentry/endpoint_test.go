package serviceentry_test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// FuzzParse shows that an endpoint in any form is parsed like encoding/json parses it.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		`{"address":"10.0.0.1","port":20001}`,
		`{"address":"::1","port":20001,"weight":7,"locality":"eu-1/eu-1a"}`,
		`{"address":"10.0.0.1","port":20001,"locality":"eu-1","labels":{"k":"v"}}`,
		`{"address":"10.0.0.1","port":20001,"weight":1,"labels":{"a":"b,c","k":"","z":"}"}}`,
		`{"address":"10.0.0.1","port":20001,"labels":{"k":"v\"","z":"\\"}}`,
		`{"address":"10.0.0.1","port":20001,"labels":{"z":"1","k":"2"}}`,
		`{"address":"10.0.0.1","port":20001,"labels":{}}`,
		`{"address":"10.0.0.1","port":20001,"weight":0}`,
		`{"address":"10.0.0.1","port":020001}`,
		`{"address":"10.0.0.1","port":70000}`,
		`{"address":"a\"b","port":1,"locality":"\u00e9"}`,
		`{"address":"10.0.0.1","port":1,"weight":99999999999}`,
		`{"address":"10.0.0.1","port":1,"locality":"eu-1"} `,
		`{"port":1,"address":"10.0.0.1"}`,
		`{}`,
		``,
	} {
		f.Add(text)
	}
	g := registry.Group{Kind: serviceentry.Kind, Namespace: "n", Name: "h"}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := serviceentry.ParseEndpoint(registry.Entry{Group: g, Key: "e", Value: text})
		var want serviceentry.Endpoint
		wrong := json.Unmarshal([]byte(text), &want)
		if (err == nil) != (wrong == nil) {
			t.Fatalf("%q: %v, want %v", text, err, wrong)
		}
		if err != nil {
			return
		}
		if e.Address != want.Address || e.Port != want.Port || e.Weight != want.Weight || e.Locality != want.Locality || !maps.Equal(e.Labels, want.Labels) {
			t.Fatalf("%q: %+v, want %+v", text, e, want)
		}
	})
}

// FuzzEndpoint shows that an endpoint is written like encoding/json writes it.
func FuzzEndpoint(f *testing.F) {
	f.Add(uint16(20001), uint32(0), "", "", "")
	f.Add(uint16(1), uint32(100), "eu-1/eu-1a", "k", "v")
	f.Add(uint16(65535), uint32(1<<31), `eu-1/"a"`, "", "v")
	f.Add(uint16(1), uint32(1), `eu<1/a\b`, "k", "ü")
	c := codec(f, options())
	f.Fuzz(func(t *testing.T, port uint16, weight uint32, zone, k, v string) {
		s := dubbo(registry.Endpoint{Host: "10.0.0.1", Port: port, Weight: weight, Zone: zone, Attributes: registry.Attributes{k: v}})
		entries, err := c.Encode(s)
		if fails(err) || len(entries) != 2 {
			return // port 0
		}
		var e serviceentry.Endpoint
		if err := json.Unmarshal([]byte(entries[1].Value), &e); err != nil {
			t.Fatal(err)
		}
		if e.Port != port || e.Weight != weight || e.Locality != "" && e.Locality != zone {
			t.Fatalf("%+v of port %d, weight %d, zone %q", e, port, weight, zone)
		}
	})
}
