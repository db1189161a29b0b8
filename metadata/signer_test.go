package metadata_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

const bareURL = "tri://10.0.0.1:20000/greet.Greeter?category=providers&interface=greet.Greeter&side=provider"

func markedEntry(value string) registry.Entry {
	return registry.Entry{
		Group: registry.Group{Kind: "dubbo-interface", Namespace: "/dubbo", Name: "greet.Greeter"},
		Key:   "tri://10.0.0.1:20000", Value: value,
	}
}

func TestSigner_MissingMark(t *testing.T) {
	for name, tc := range map[string]struct{ marked, bare string }{
		"last in a URL":               {bareURL + "&xdsb=abcdef123", bareURL},
		"in the middle":               {bareURL + "&xdsb=abcdef123&zone=a", bareURL + "&zone=a"},
		"first in a URL":              {"tri://h:1/i?xdsb=abcdef123&a=b", "tri://h:1/i?a=b"},
		"the only parameter of a URL": {"tri://h:1/i?xdsb=abcdef123", "tri://h:1/i"},
		"none":                        {bareURL, bareURL},
		"another parameter's end":     {"tri://h:1/i?noxdsb=abcdef123", "tri://h:1/i?noxdsb=abcdef123"},
		"emptied by another tool":     {bareURL + "&xdsb=", bareURL},
		"last in JSON":                {`{"ip":"10.0.0.1","metadata":{"side":"provider","xdsb":"abcdef123"}}`, `{"ip":"10.0.0.1","metadata":{"side":"provider"}}`},
		"first in JSON":               {`{"metadata":{"xdsb":"abcdef123","zone":"a"}}`, `{"metadata":{"zone":"a"}}`},
		"the only member in JSON":     {`{"metadata":{"xdsb":"abcdef123"}}`, `{"metadata":{}}`},
		"JSON cut short":              {`{"metadata":{"xdsb":"abc`, `{"metadata":{"xdsb":"abc`},
	} {
		if got := metadata.Bare(markedEntry(tc.marked)).Value; got != tc.bare {
			t.Errorf("%s: %s\nwant %s", name, got, tc.bare)
		}
	}
}

func TestSigner_ForgedMark(t *testing.T) {
	mark := metadata.NewMark("shop", "mesh-to-zk")
	mark.Path = "aaaabbbbccccdddd"
	signer := metadata.NewSigner([]byte("a key of this deployment"))
	signed := signer.Sign(markedEntry(bareURL + "&xdsb=" + mark.String()))
	m, err := metadata.MarkOf(signed)
	if err != nil || len(m.String()) > 40 {
		t.Fatalf("mark %q of %d bytes: %v", m, len(m.String()), err)
	}
	if again := signer.Sign(signed); again != signed {
		t.Errorf("signed once more it is %s", again.Value)
	}
	other := metadata.NewSigner([]byte("another key"))
	elsewhere, otherKey, otherPath := signed, signed, m
	elsewhere.Group.Name, otherKey.Key, otherPath.Path = "greet.Other", "tri://10.0.0.2:20000", "aaaa"
	unsigned := m
	unsigned.Signature = ""
	for name, tc := range map[string]struct {
		signer *metadata.Signer
		entry  registry.Entry
		mark   metadata.Mark
		ours   bool
	}{
		"as it was signed":            {signer, signed, m, true},
		"by a key that was rotated":   {metadata.NewSigner([]byte("new"), []byte("a key of this deployment")), signed, m, true},
		"without keys any is trusted": {nil, signed, m, true},
		"by another key":              {other, signed, m, false},
		"not signed":                  {signer, signed, unsigned, false},
		"copied to another group":     {signer, elsewhere, m, false},
		"copied to another instance":  {signer, otherKey, m, false},
		"with another path":           {signer, signed, otherPath, false},
	} {
		owner := tc.signer.Owner(tc.entry, tc.mark, mark.Owner)
		if (owner == mark.Owner) != tc.ours || !strings.HasPrefix(owner, mark.Owner) {
			t.Errorf("%s: owner %q, want ours %v", name, owner, tc.ours)
		}
	}
	if foreign := metadata.NewMark("bank", "b"); signer.Owner(signed, foreign, mark.Owner) != foreign.Owner {
		t.Error("a foreign mark is read as ours")
	}
}

func TestSigner_Tag(t *testing.T) {
	signer := metadata.NewSigner([]byte("new"), []byte("old"))
	marked := signer.Sign(markedEntry(bareURL + "&xdsb=abcdef123"))
	tags := signer.Tags(marked)
	if bare := signer.Tags(markedEntry(bareURL)); len(bare) != 2 || bare[0] != tags[0] || bare[1] != tags[1] {
		t.Errorf("tags %x of the marked and %x of the bare entry", tags, bare)
	}
	if old := metadata.NewSigner([]byte("old")).Tags(marked); old[0] != tags[1] {
		t.Error("the tag by the older key is not found again after a rotation")
	}
	if plain := (*metadata.Signer)(nil).Tags(marked); plain[0] == tags[0] || plain[0] == tags[1] {
		t.Error("a tag can be made without the key")
	}
	if changed := signer.Tags(markedEntry(bareURL + "&zone=a")); changed[0] == tags[0] {
		t.Error("an entry of another value has the same tag")
	}
}

func TestParseMark_Signatures(t *testing.T) {
	for _, s := range []string{"abcdef123.", "abcdef123.1234567", "abcdef123.123456789", "abcdef123.1234567w", "abcdef123.1234.678", ".12345678"} {
		if m, err := metadata.ParseMark(s); !errors.Is(err, metadata.ErrMark) {
			t.Errorf("%q: %v, %v", s, m, err)
		}
	}
}

func FuzzRemark(f *testing.F) {
	f.Add(bareURL + "&xdsb=abcdef123&zone=a")
	f.Add(`{"metadata":{"xdsb":"abcdef123.12345678","zone":"a"}}`)
	f.Add(`{"xdsb":"`)
	f.Fuzz(func(t *testing.T, value string) {
		e := markedEntry(value)
		if same := metadata.Remark(e, func(m metadata.Mark) metadata.Mark { return m }); same != e {
			t.Errorf("%q is read as %q", value, same.Value)
		}
		if len(metadata.Bare(e).Value) > len(value) {
			t.Errorf("%q grew", value)
		}
	})
}
