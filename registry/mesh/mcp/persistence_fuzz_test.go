package mcp

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

// FuzzPersistedBucket shows that a record that was altered anywhere is either exactly
// what was written or an error.
func FuzzPersistedBucket(f *testing.F) {
	var want []persistedGroup
	for n := range 20 {
		want = append(want, persistedGroup{groupOf(fmt.Sprintf("a%d.bridge.internal", n)), []entry{{"", "head"}, {"10.0.0.1:80", "v"}}, 0})
	}
	text, err := encodeBucket(want)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(0, 0, "")
	f.Add(10, 1, "B")
	f.Add(len(text)/2, 1, "x")
	f.Add(len(text)/2, len(text), "")
	f.Add(len(text), 0, text)
	f.Add(0, len(text), "e30=")
	f.Fuzz(func(t *testing.T, at, drop int, put string) {
		at = max(0, min(at, len(text)))
		end := max(at, min(at+max(0, min(drop, len(text))), len(text)))
		got, err := decodeBucket(text[:at] + put + text[end:])
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("decodeBucket() of an altered record = %d groups, want those that were written", len(got))
		}
		if err != nil && got != nil {
			t.Errorf("decodeBucket() = %v, %v, want no groups with an error", got, err)
		}
	})
}

// A mutant that does not look at the form, or accepts any size, is seen here.
func TestPersistedBucket_FormAndBounds(t *testing.T) {
	for _, raw := range []string{`{"version":2,"groups":[]}`, `{"version":0}`, `[]`, ``} {
		if got, err := decodeBucket(pack(t, raw)); err == nil {
			t.Errorf("decodeBucket(%s) = %v, want an error", raw, got)
		}
	}
	random, noise := rand.NewChaCha8([32]byte{}), make([]byte, 2<<20)
	_, _ = random.Read(noise)
	if text, err := encodeBucket([]persistedGroup{{groupOf("large"), []entry{{"", base64.StdEncoding.EncodeToString(noise)}}, 0}}); !errors.Is(err, registry.ErrRefused) {
		t.Errorf("encodeBucket() = %d bytes, %v, want a refusal", len(text), err)
	}
}

func groupOf(name string) registry.Group {
	return registry.Group{Kind: "service-entry", Namespace: "ns", Name: name}
}

func pack(t *testing.T, raw string) string {
	t.Helper()
	var out bytes.Buffer
	text := base64.NewEncoder(base64.StdEncoding, &out)
	packed := gzip.NewWriter(text)
	_, err := packed.Write([]byte(raw))
	if err := errors.Join(err, packed.Close(), text.Close()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
