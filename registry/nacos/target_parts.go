package nacos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// MultiPath is implemented by layouts that store parts of a group in configurations, to which
// instances refer.
type MultiPath interface {
	// Config returns the configuration that stores an entry. If several processes write it
	// as a list, it also returns the element of the entry. For an instance it has no id.
	Config(entry registry.Entry) (at metadata.NacosConfig, element string)

	// Elements returns the elements of lists that belong to an entry, as entries. They are
	// ours as long as the entry exists.
	Elements(entry registry.Entry) []registry.Entry
}

// index returns the configuration that lists our parts of a group, with one key per line,
// because configurations cannot be listed:
//
//	configuration xds-bridge.<owner>.<hash of the group> of group xds-bridge
func (t *Target) index(g registry.Group) metadata.NacosConfig {
	name := strings.Join([]string{g.Kind, g.Namespace, g.Group, g.Name}, "\x00")
	return metadata.NacosConfig{
		Namespace: g.Namespace, Group: IDGroup, ID: "xds-bridge." + t.opts.Owner + "." + metadata.Fingerprint(name, 20),
	}
}

// parts reads our parts of a group.
func (t *Target) parts(ctx context.Context, g registry.Group) ([]registry.Stored, error) {
	layout, ok := t.layoutOf(g).(MultiPath)
	if !ok {
		return nil, nil
	}
	index, _, err := readConfig(ctx, t.client, t.index(g))
	if err != nil {
		return nil, err
	}
	var stored []registry.Stored
	elements := make(map[string]registry.Entry)
	for key := range strings.FieldsSeq(index) {
		h, there, err := t.part(ctx, layout, registry.Entry{Group: g, Key: key})
		if err != nil {
			return nil, err
		}
		if !there {
			continue
		}
		stored = append(stored, h)
		for _, e := range layout.Elements(h.Entry) {
			elements[e.Key] = e
		}
	}
	for _, e := range elements {
		at, element := layout.Config(e)
		text, _, err := readConfig(ctx, t.client, at)
		if err != nil {
			return nil, err
		}
		if hasElement(text, element) {
			stored = append(stored, registry.Stored{Entry: e, Owner: t.opts.Owner, Live: true})
		}
	}
	return stored, nil
}

// part reads a part that has its own configuration, or returns false if there is none.
func (t *Target) part(ctx context.Context, layout MultiPath, e registry.Entry) (registry.Stored, bool, error) {
	at, element := layout.Config(e)
	if at.ID == "" || element != "" {
		return registry.Stored{}, false, nil
	}
	text, there, err := readConfig(ctx, t.client, at)
	if err != nil || !there {
		return registry.Stored{}, false, err
	}
	e.Value = text
	mark, err := metadata.MarkOf(e)
	if err != nil {
		mark = metadata.Mark{} // another tool changed it
	}
	return registry.Stored{Entry: e, Owner: t.opts.Signer.Owner(e, mark, t.opts.Owner), Live: true}, true, nil
}

// putParts writes the parts of a change, before the instances that refer to them. It adds the
// parts that the server refuses to refused.
func (t *Target) putParts(
	ctx context.Context, layout MultiPath, change registry.Change, refused registry.Refused,
) error {
	if !slices.ContainsFunc(change.Put, func(w registry.Write) bool { return registry.IsPart(w.New.Key) }) {
		return nil
	}
	if err := t.setIndex(ctx, layout, change, change.Delete); err != nil {
		return err
	}
	for _, w := range change.Put {
		if !registry.IsPart(w.New.Key) {
			continue
		}
		at, element := layout.Config(w.New)
		var err error
		if element != "" {
			err = t.client.addElement(ctx, at, element)
		} else {
			err = t.client.setConfig(ctx, at, w.New.Value, "")
		}
		if errors.Is(err, registry.ErrRefused) {
			refused[w.New.Key] = err
		} else if err != nil {
			return fmt.Errorf("%s: %w", w.New.Key, err)
		}
	}
	return nil
}

// deleteParts deletes the parts of a change, after the instances that referred to them. It
// adds the parts that the server refuses to refused. Elements are kept, because others may
// refer to them.
func (t *Target) deleteParts(
	ctx context.Context, layout MultiPath, change registry.Change, refused registry.Refused,
) error {
	gone := false
	for _, h := range slices.Backward(change.Delete) {
		if !registry.IsPart(h.Key) {
			continue
		}
		gone = true
		at, element := layout.Config(h.Entry)
		if element != "" {
			continue
		}
		if err := t.client.removeConfig(ctx, at); errors.Is(err, registry.ErrRefused) {
			refused[h.Key] = err
		} else if err != nil {
			return fmt.Errorf("%s: %w", h.Key, err)
		}
	}
	if !gone {
		return nil
	}
	return t.setIndex(ctx, layout, change.Except(refused), nil)
}

// setIndex writes the index of our parts: the desired ones, and those that are deleted later.
func (t *Target) setIndex(
	ctx context.Context, layout MultiPath, change registry.Change, toDelete []registry.Stored,
) error {
	var keys []string
	add := func(e registry.Entry) {
		if at, element := layout.Config(e); at.ID != "" && element == "" {
			keys = append(keys, e.Key)
		}
	}
	for _, e := range change.Want {
		add(e)
	}
	for _, h := range toDelete {
		add(h.Entry)
	}
	slices.Sort(keys)
	at := t.index(change.Group)
	if len(keys) == 0 {
		return t.client.removeConfig(ctx, at)
	}
	return t.client.setConfig(ctx, at, strings.Join(slices.Compact(keys), "\n"), "")
}
