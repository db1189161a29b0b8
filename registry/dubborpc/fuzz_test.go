package dubborpc

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// FuzzDocument shows that every response of a provider is decoded into a document or an
// error.
func FuzzDocument(f *testing.F) {
	text := func(b []byte, n protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
	}
	one := text(text(text(nil, 1, "api.Greeter"), 4, "tri"), 6, "api.Greeter")
	one = protowire.AppendVarint(protowire.AppendTag(one, 5, protowire.VarintType), 20880)
	one = text(one, 7, string(text(text(nil, 1, "side"), 2, "provider")))
	whole := text(text(text(nil, 1, "shop"), 2, "r1"), 3, string(text(text(nil, 1, "api.Greeter"), 2, string(one))))
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Add(text(nil, 3, "\xff\xff\xff\xff\x0f"))
	f.Add([]byte{0x1a, 0x00})
	f.Fuzz(func(t *testing.T, answer []byte) {
		document, err := documentOf(answer)
		if err != nil {
			return
		}
		if text, err := textOf(document); err != nil || !json.Valid([]byte(text)) {
			t.Errorf("%q, %v", text, err)
		}
	})
}
