package metadata_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
)

// FuzzNacosInstance checks that instances are read and written as
// encoding/json reads and writes them, in whatever form they are.
func FuzzNacosInstance(f *testing.F) {
	for _, text := range []string{
		`{"ip":"10.0.0.1","port":20000,"weight":1,"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"DEFAULT","metadata":{"a":"1","b":""}}`,
		`{"ip":"::1","port":65535,"weight":10000,"healthy":false,"enabled":true,"ephemeral":false,"clusterName":"blue","metadata":{}}`,
		`{"ip":"10.0.0.1","port":1,"weight":0.5,"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"DEFAULT","metadata":{"b":"1","a":"2"}}`,
		`{"ip":"10.0.0.1","port":1,"weight":-0,"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"DEFAULT","metadata":{"a":"\u00e9","k":"<\",\">"}}`,
		`{"ip":"10.0.0.1","port":70000,"weight":1,"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"DEFAULT","metadata":{"a":"1","a":"2"}}`,
		`{"metadata":null}`,
		`{"ip":"a`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := metadata.ParseNacosInstance(text)
		var want metadata.NacosInstance
		wrong := json.Unmarshal([]byte(text), &want)
		if (err == nil) != (wrong == nil) {
			t.Fatalf("%v, want %v", err, wrong)
		}
		if err != nil {
			return
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, want %+v", got, want)
		}
		if want.Cluster == "" {
			want.Cluster = metadata.DefaultNacosCluster
		}
		if want.Metadata == nil {
			want.Metadata = map[string]string{}
		}
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(want); err != nil {
			t.Fatal(err)
		}
		if s := got.String() + "\n"; s != b.String() {
			t.Fatalf("%swant %s", s, b.String())
		}
	})
}
