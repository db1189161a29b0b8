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
	unchanged bool // the bytes are those held under name
	value     T
}

// parsedResponse is a response, sorted by what to do with its resources.
type parsedResponse[T any] struct {
	valid            []decodedResource[T] // one per name
	names            map[string]struct{}
	failed           map[string]error // by name
	nameless         map[string]error // by place in the response
	repeatsPresented bool             // it has a resource in the version that the server was sent
}

// parse decodes a response. It leaves out resources that were not asked for, and
// rejects a name that is there twice, since either could be meant.
func (t *cachedTypeOf[T]) parse(r discoveryResponse, ts *typeStream) parsedResponse[T] {
	all := t.decodeAll(r.resources)
	out := parsedResponse[T]{
		valid: all[:0], names: make(map[string]struct{}, len(all)),
		failed: map[string]error{}, nameless: map[string]error{},
	}
	duplicates := map[string]struct{}{}
	for i, d := range all {
		if d.name == Wildcard {
			d.name, d.err = "", errors.New("named *, which means everything")
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
		out.failed[name] = errors.New("duplicate: the name is more than once in one response")
	}
	out.valid = slices.DeleteFunc(out.valid, func(d decodedResource[T]) bool { return out.failed[d.name] != nil })
	return out
}

// decodeBatch is how many resources are worth a goroutine.
const decodeBatch = 32

// decodeAll decodes resources, many of them on all processors. What is known
// changes only after it returned.
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

// decode decodes one resource if its bytes are new.
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
		d.err = fmt.Errorf("envelope names it %s, the resource itself %s", quoteName(r.name), quoteName(name))
	}
	return d
}

func (t *cachedTypeOf[T]) isUnchanged(name string, sum digest) bool {
	r := t.resources[name]
	return r != nil && r.hasValue && r.sum == sum
}

// callDecode calls the subscriber's Decode. Its panic costs one resource and not
// the process, since its input comes from outside.
func (t *cachedTypeOf[T]) callDecode(data []byte) (name string, value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decoder panicked: %v", p)
		}
	}()
	return t.kind.Decode(data)
}

// maxRejected bounds the resources that one rejection lists.
const maxRejected = 10

// rejection is the error to reject a response with, or nil.
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

// quoteName quotes a name for an error, cut if it is very long.
func quoteName(name string) string {
	const most = 300
	if len(name) > most {
		return fmt.Sprintf("%q...", name[:most])
	}
	return fmt.Sprintf("%q", name)
}
