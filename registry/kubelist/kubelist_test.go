package kubelist_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry/kubelist"
)

const pods = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"next","remainingItemCount":9},"items":[{"a":1},{"b":[{}]}],"later":{}}`

func read(text string) (items []string, p kubelist.Page, err error) {
	p, err = kubelist.Read(strings.NewReader(text), "Pod", func(item json.RawMessage) error {
		items = append(items, string(item))
		return nil
	})
	return items, p, err
}

func TestRead(t *testing.T) {
	t.Parallel()
	items, p, err := read(pods)
	if want := (kubelist.Page{ResourceVersion: "7", Continue: "next"}); err != nil || p != want || strings.Join(items, " ") != `{"a":1} {"b":[{}]}` {
		t.Errorf("Read() = %v, %+v, %v, want the two objects and %+v", items, p, err, want)
	}
	for _, empty := range []string{`{"kind":"PodList","items":[]}`, `{"items":null,"kind":"PodList"}`, `{"kind":"PodList"}`} {
		if items, _, err := read(empty); err != nil || len(items) > 0 {
			t.Errorf("%s: %v, %v, want no objects", empty, items, err)
		}
	}
}

// TestRead_Partial: an incomplete list is an error, never a shorter list.
func TestRead_Partial(t *testing.T) {
	t.Parallel()
	for i := range len(pods) {
		if _, _, err := read(pods[:i]); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: error %v, want one other than io.EOF", pods[:i], err)
		}
	}
	for text, want := range map[string]string{
		`{}`:                                   `expected a list of Pod, got ""`,
		`{"kind":"Status"}`:                    `expected a list of Pod, got "Status"`,
		`{"kind":"NodeList","items":[]}`:       `expected a list of Pod, got "NodeList"`,
		`{"kind":"PodList","items":{}}`:        `items: expected a list`,
		`{"kind":"PodList","items":[1,}`:       `invalid character`,
		`{"kind":7}`:                           `cannot unmarshal`,
		`[]`:                                   `not a JSON object`,
		`<html>`:                               `invalid character`,
		`{"kind":"PodList","metadata":"none"}`: `cannot unmarshal`,
	} {
		if _, _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", text, err, want)
		}
	}
	refused := errors.New("refused")
	if _, err := kubelist.Read(strings.NewReader(pods), "Pod", func(json.RawMessage) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("error %v, want that of item", err)
	}
}

// FuzzRead: any text is refused, or its items are JSON.
func FuzzRead(f *testing.F) {
	for _, text := range []string{pods, `{"kind":"PodList","items":[null,"a",[]]}`, `{"kind":"PodList","kind":"x"}`, `{}`, ``} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		items, _, err := read(text)
		for _, item := range items {
			if !json.Valid([]byte(item)) {
				t.Errorf("item %q is not JSON", item)
			}
		}
		if err == nil && !strings.Contains(text, "{") {
			t.Errorf("%q is a list", text)
		}
	})
}

func TestLimit_Reduced(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		limit kubelist.Limit
		seen  int64
		want  kubelist.Limit
		may   bool
	}{
		{0, 400, 250, true}, {0, 60, 45, true}, {100, 0, 1, true}, {2, 1, 1, true}, {1, 0, 1, false},
	} {
		if got, may := tt.limit.Reduced(tt.seen); got != tt.want || may != tt.may {
			t.Errorf("%d after %d objects: %d, %v, want %d, %v", tt.limit, tt.seen, got, may, tt.want, tt.may)
		}
	}
}

func TestBound(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "0123456789") }))
	t.Cleanup(server.Close)
	for query, tt := range map[string]struct {
		most int64
		want error
	}{
		"":            {10, nil},
		"?limit=1":    {9, kubelist.ErrTooLarge},
		"?limit=2":    {0, nil},
		"?watch=true": {9, nil},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+query, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := kubelist.Bound(tt.most)(http.DefaultTransport).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", query, err, tt.want)
		}
	}
}
