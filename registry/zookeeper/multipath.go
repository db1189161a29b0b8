package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// beside returns the paths of our nodes in the other folders of a group. Those
// of others are not even read: there may be many, and nothing of them matters.
func (t *Target) beside(ctx context.Context, layout Layout, group registry.Group, from lists) ([]string, error) {
	wide, ok := layout.(MultiPath)
	if !ok {
		return nil, nil
	}
	var paths []string
	for _, folder := range wide.Beside(group) {
		names, err := from.children(ctx, folder)
		if errors.Is(err, zk.ErrNoNode) {
			t.folders.forget(folder)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", folder, err)
		}
		t.folders.know(folder)
		for _, name := range names {
			if _, mark := layout.Entry(group, folder+"/"+name, nil); mark.Owner == t.owner {
				paths = append(paths, folder+"/"+name)
			}
		}
	}
	return paths, nil
}

// withWords adds the words that come with entries of ours, as far as they are
// in their lists.
func (t *Target) withWords(ctx context.Context, layout Layout, held []registry.Held, from lists) ([]registry.Held, error) {
	wide, ok := layout.(MultiPath)
	if !ok {
		return held, nil
	}
	seen := make(map[string]bool)
	for _, h := range slices.Clone(held) {
		if h.Owner != t.owner {
			continue
		}
		for _, e := range wide.Words(h.Entry) {
			if seen[e.Key] {
				continue
			}
			seen[e.Key] = true
			path, word := wide.Word(e)
			list, err := words(ctx, from, path)
			if errors.Is(err, registry.ErrRefused) {
				continue // to add the word is refused, and costs that alone
			}
			if err != nil {
				return nil, err
			}
			if slices.Contains(list.words, word) {
				held = append(held, registry.Held{Entry: e, Owner: t.owner, Live: true})
			}
		}
	}
	slices.SortFunc(held, func(a, b registry.Held) int { return a.Compare(b.Entry) })
	return held, nil
}

// A wordList is a node with words of many, separated by commas.
type wordList struct {
	there   bool
	data    string
	words   []string
	version int32
}

func words(ctx context.Context, from lists, path string) (wordList, error) {
	n, err := from.get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return wordList{}, nil
	}
	if err != nil {
		return wordList{}, fmt.Errorf("%s: %w", path, err)
	}
	list := wordList{there: true, data: string(n.data), version: n.stat.Version}
	for word := range strings.SplitSeq(list.data, ",") {
		list.words = append(list.words, strings.TrimSpace(word))
	}
	return list, nil
}

// isWord reports whether an entry stands for a word in a list.
func isWord(layout Layout, e registry.Entry) bool {
	wide, ok := layout.(MultiPath)
	if !ok {
		return false
	}
	path, _ := wide.Word(e)
	return path != ""
}

// addWord returns what adds a word to its list if the list is still as it was
// read; nothing where the word is there.
func (w *writing) addWord(ctx context.Context, e registry.Entry) (unit, error) {
	path, word := w.layout.(MultiPath).Word(e)
	if err := checkName(path[strings.LastIndexByte(path, '/')+1:]); err != nil {
		return unit{}, err
	}
	list, err := words(ctx, w.target.client, path)
	switch {
	case err != nil:
		return unit{}, err
	case slices.Contains(list.words, word):
		return unit{}, nil
	case !list.there:
		w.words[path] = true
		return w.unit(e.Key, 0, &zk.CreateRequest{Path: path, Data: []byte(word), Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagPersistent}), nil
	}
	text := word
	if strings.Trim(list.data, ", ") != "" {
		text = strings.TrimRight(list.data, ", ") + "," + word
	}
	return w.unit(e.Key, 0, &zk.SetDataRequest{Path: path, Data: []byte(text), Version: list.version}), nil
}
