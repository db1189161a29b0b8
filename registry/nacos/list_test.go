package nacos

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A view is what a server holds when it is asked.
type view struct {
	names []string
	count int // reported; 0: as many as there are
}

// shifting is a server of which the first of six services goes, and another
// comes, before each request.
func shifting(requests int) []view {
	out := make([]view, requests)
	for i := range out {
		for j := range 6 {
			out[i].names = append(out[i].names, fmt.Sprintf("s%03d", i+j))
		}
	}
	return out
}

// TestListAll: a list is all of the names or an error, whatever happens to
// the services between two pages.
func TestListAll(t *testing.T) {
	t.Parallel()
	six := strings.Fields("a b c d e f")
	still := func(names ...string) []view { return []view{{names: names}} }
	for name, tt := range map[string]struct {
		limit int    // of a page; 0: none
		views []view // what each request meets; the last one continues
		want  []string
		fails bool
	}{
		"nothing is whole":                             {views: still()},
		"one page":                                     {views: still(six...), want: six},
		"pages, the last one shorter":                  {limit: 4, views: still(six...), want: six},
		"pages, the last one full":                     {limit: 3, views: still(six...), want: six},
		"one page with less than it reports":           {views: []view{{six[:5], 6}}, fails: true},
		"one page with more than it reports":           {views: []view{{six, 5}}, fails: true},
		"pages that end before the count":              {limit: 3, views: []view{{six, 7}}, fails: true},
		"a name twice in the place of another":         {views: []view{{strings.Fields("a b c d e a"), 6}}, fails: true},
		"a service goes between two pages":             {limit: 3, views: []view{{names: six}, {names: six[1:]}}, want: six[1:]},
		"a service comes between two pages":            {limit: 3, views: []view{{names: six[1:]}, {names: six}}, want: six},
		"one goes, one comes, and no page shows the d": {limit: 3, views: []view{{names: six}, {names: strings.Fields("b c d e f g")}}, want: strings.Fields("b c d e f g")},
		"one goes and one comes before each page":      {limit: 3, views: shifting(40), fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			names, err := listAll(func(number, size int) (page, error) {
				v := tt.views[min(asked, len(tt.views)-1)]
				asked++
				most := size
				if tt.limit > 0 {
					most = min(most, tt.limit)
				}
				from := min((number-1)*size, len(v.names))
				p := page{Count: len(v.names), ServiceNames: slices.Clone(v.names[from:min(from+most, len(v.names))])}
				if v.count != 0 {
					p.Count = v.count
				}
				return p, nil
			})
			if (err != nil) != tt.fails || err == nil && !slices.Equal(names, tt.want) {
				t.Errorf("%q, %v; want %q", names, err, tt.want)
			}
			if asked > 12 {
				t.Errorf("%d requests", asked)
			}
		})
	}
	if names, err := listAll(func(int, int) (page, error) { return page{}, errors.ErrUnsupported }); names != nil || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("of a server that fails: %q, %v", names, err)
	}
}
