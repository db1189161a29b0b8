package ads

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// decodedResource is one resource of a response.
type decodedResource[T any] struct {
	rawResource

	sum       digest
	unchanged bool // the cached resource has the same bytes; value is not set
	value     T
}

// parsedResponse is a response whose resources are decoded: valid, or rejected.
type parsedResponse[T any] struct {
	names    map[string]struct{}  // of all resources that are subscribed to
	valid    []decodedResource[T] // one per name
	failed   map[string]error     // rejected, by name
	nameless map[string]error     // rejected without a readable name, by position

	// repeatsPresented is set if some resource has the version that we presented in the first
	// request. Such a server does not compare versions.
	repeatsPresented bool
}

// parse decodes a response. It ignores resources that are not subscribed to. It rejects
// resources that share a name, because it cannot decide between them.
func (t *cachedTypeOf[T]) parse(r discoveryResponse, ts *typeStream) parsedResponse[T] {
	all := t.decodeAll(r.resources)
	out := parsedResponse[T]{
		valid: all[:0], names: make(map[string]struct{}, len(all)),
		failed: map[string]error{}, nameless: map[string]error{},
	}
	duplicates := map[string]struct{}{}
	for i, d := range all {
		if d.name == Wildcard {
			d.name, d.err = "", errors.New("the name * is reserved for the wildcard")
		}
		if d.name == "" && d.err != nil {
			out.nameless[fmt.Sprintf("resource[%d]", i)] = d.err
			continue
		}
		if !t.subscribed.covers(d.name) {
			continue
		}
		if has(out.names, d.name) {
			duplicates[d.name] = struct{}{}
			continue
		}
		out.names[d.name] = struct{}{}
		out.repeatsPresented = out.repeatsPresented || d.version != "" && ts.presentedVersions[d.name] == d.version
		switch {
		case d.err != nil:
			out.failed[d.name] = d.err
		case !d.heartbeat:
			out.valid = append(out.valid, d)
		}
	}
	for name := range duplicates {
		out.failed[name] = errors.New("duplicate: several resources in one response have this name")
	}
	out.valid = slices.DeleteFunc(out.valid, func(d decodedResource[T]) bool { return out.failed[d.name] != nil })
	return out
}

// decodeBatch is the number of resources from which another goroutine is worth its cost.
const decodeBatch = 32

// decodeAll decodes resources, on all processors if there are many. The cached resources must
// not change until it returns.
func (t *cachedTypeOf[T]) decodeAll(resources []rawResource) []decodedResource[T] {
	all := make([]decodedResource[T], len(resources))
	var next atomic.Int64
	work := func() {
		for {
			end := int(next.Add(decodeBatch))
			start := end - decodeBatch
			if start >= len(resources) {
				return
			}
			for i := start; i < min(end, len(resources)); i++ {
				all[i] = t.decode(resources[i])
			}
		}
	}
	var others sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), (len(resources)+decodeBatch-1)/decodeBatch) - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
	return all
}

// decode decodes one resource, unless its bytes are those of the cached one.
func (t *cachedTypeOf[T]) decode(r rawResource) decodedResource[T] {
	d := decodedResource[T]{rawResource: r}
	if r.err != nil || r.heartbeat {
		return d
	}
	d.sum = t.hasher.sum(r.data)
	if !r.named {
		d.name = t.namesBySum[d.sum]
	}
	if d.unchanged = t.isUnchanged(d.name, d.sum); d.unchanged {
		return d
	}
	var name string
	name, d.value, d.err = t.callDecode(r.data)
	switch {
	case !r.named:
		d.name = name
		d.unchanged = d.err == nil && t.isUnchanged(name, d.sum)
	case d.err == nil && name != r.name:
		d.err = fmt.Errorf("the envelope has the name %s, the resource has %s", quoteName(r.name), quoteName(name))
	}
	return d
}

// isUnchanged reports whether the cached resource of a name has the digest.
func (t *cachedTypeOf[T]) isUnchanged(name string, sum digest) bool {
	r := t.resources[name]
	return r != nil && r.hasValue && r.sum == sum
}

// callDecode calls the subscriber's Decode. A panic rejects only the resource: its bytes are
// untrusted input, which must not end the process.
func (t *cachedTypeOf[T]) callDecode(data []byte) (name string, value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decoder panicked: %v", p)
		}
	}()
	return t.kind.Decode(data)
}

// maxRejected bounds the resources that one NACK lists.
const maxRejected = 10

// rejection returns the error of the NACK; nil: the response is accepted.
func (d *parsedResponse[T]) rejection() error {
	failed := maps.Clone(d.nameless)
	maps.Copy(failed, d.failed)
	if len(failed) == 0 {
		return nil
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		if len(lines) == maxRejected {
			lines = append(lines, fmt.Sprintf("and %d more", len(failed)-maxRejected))
			break
		}
		lines = append(lines, fmt.Sprintf("%s: %v", quoteName(name), failed[name]))
	}
	return errors.New(strings.Join(lines, "; "))
}

// quoteName quotes a name for an error, and truncates a very long one.
func quoteName(name string) string {
	const maxLen = 300
	if len(name) > maxLen {
		return fmt.Sprintf("%q...", name[:maxLen])
	}
	return fmt.Sprintf("%q", name)
}
