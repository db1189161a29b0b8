package nacos

import (
	"fmt"
	"slices"

	"github.com/nacos-group/nacos-sdk-go/v2/common/remote/rpc/rpc_request"
)

// A page is a part of a list of services.
type page struct {
	response

	Count        int      `json:"count"` // of all pages
	ServiceNames []string `json:"serviceNames"`
}

// listNames returns the names of all services of a namespace and group, over
// the connection that call uses.
func listNames(namespace, group string, call func(rpc_request.IRequest, answer) error) ([]string, error) {
	return listAll(func(number, size int) (page, error) {
		var p page
		err := call(rpc_request.NewServiceListRequest(onWire(namespace), "", group, number, size, ""), &p)
		return p, err
	})
}

// listAll returns the names of all services. It asks for them in one page,
// because a server sorts everything anew for each; where the server gives
// less, it asks for the rest in pages of that size. One page is whole where it
// holds as many different names as it reports. Pages are whole only if a
// second reading shows the same: a service that goes between two of them moves
// another to a page that was read before, and one that comes hides that in the
// count.
func listAll(ask func(number, size int) (page, error)) ([]string, error) {
	const tries, all = 4, 1_000_000
	var before []string
	n := 0
	for range tries {
		names, pages, err := listOnce(ask, all)
		if err != nil {
			return nil, err
		}
		n = len(names)
		if pages == 1 || pages > 1 && slices.Equal(names, before) {
			return names, nil
		}
		before = nil
		if pages > 1 {
			before = names
		}
	}
	return nil, fmt.Errorf("nacos ServiceListRequest: %d services reported, and not as many as the server counts, or others each time: a partial list is none", n)
}

// listOnce reads all pages and returns the names with how many pages they came
// in, 0 where they make no whole.
func listOnce(ask func(number, size int) (page, error), size int) ([]string, int, error) {
	first, err := ask(1, size)
	if err != nil {
		return nil, 0, err
	}
	names := first.ServiceNames
	seen := make(map[string]struct{}, len(names))
	for number, p := 1, first; ; {
		for _, name := range p.ServiceNames {
			seen[name] = struct{}{}
		}
		switch {
		case len(seen) != len(names), len(names) > first.Count, len(p.ServiceNames) == 0 && len(names) < first.Count:
			return names, 0, nil
		case len(names) == first.Count:
			return names, number, nil
		}
		number++
		if p, err = ask(number, len(first.ServiceNames)); err != nil {
			return nil, 0, err
		}
		names = append(names, p.ServiceNames...)
	}
}
