package nacos

import "fmt"

// A page is a part of a list of services.
type page struct {
	response

	Count        int      `json:"count"` // of all pages
	ServiceNames []string `json:"serviceNames"`
}

// listAll returns the names of all services. It asks for them in one page,
// because a server sorts everything anew for each; where the server gives
// less, it asks for the rest in pages of that size. A list that changes while
// it is read is read again: it is whole where all pages tell of one count and
// hold as many different names.
func listAll(ask func(number, size int) (page, error)) ([]string, error) {
	const tries, all = 3, 1_000_000
	var err error
	for range tries {
		var names []string
		var whole bool
		if names, whole, err = listOnce(ask, all); whole || err != nil {
			return names, err
		}
		err = fmt.Errorf("nacos ServiceListRequest: %d services told of, and not as many as the server counts: a partial list is none", len(names))
	}
	return nil, err
}

// listOnce reads all pages, and reports whether they make a whole.
func listOnce(ask func(number, size int) (page, error), size int) ([]string, bool, error) {
	first, err := ask(1, size)
	if err != nil {
		return nil, false, err
	}
	names := first.ServiceNames
	seen := make(map[string]struct{}, len(names))
	for number, p := 2, first; ; number++ {
		for _, name := range p.ServiceNames {
			seen[name] = struct{}{}
		}
		if len(seen) != len(names) {
			return names, false, nil
		}
		if len(names) >= first.Count || len(p.ServiceNames) == 0 {
			return names, len(names) == first.Count, nil
		}
		if p, err = ask(number, len(first.ServiceNames)); err != nil {
			return nil, false, err
		}
		if p.Count != first.Count {
			return names, false, nil
		}
		names = append(names, p.ServiceNames...)
	}
}
