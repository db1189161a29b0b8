package metadata

import (
	"strconv"
	"strings"
)

// StampKey is the parameter of a provider's URL that holds a stamp: it is
// Dubbo's own, where a provider writes when it started.
const StampKey = "timestamp"

// NoStamp is what is in the place of a stamp before Stamp works it out.
const NoStamp = "0000000000"

// The stamps: as seconds, in which dubbo-go counts, they lie from 2001 to 2010,
// and as milliseconds, in which Java does, in January 1970. So no consumer
// takes the provider for one that has just started and sends it fewer calls.
const (
	firstStamp = 1_000_000_000
	stamps     = 1 << 28
)

// Stamp returns a provider's URL with the stamp of all else that it says;
// what has no place for one comes back as it is.
//
// dubbo-go keeps providers by address, interface and timestamp. Two nodes of
// one address with the same timestamp are one provider to it, which goes with
// the first of the two. A stamp changes whenever anything else does, and is
// the same on every replica and after every restart.
func Stamp(url string) string {
	from := stampIn(url)
	if from < 0 {
		return url
	}
	before, after := url[:from], url[from+len(NoStamp):]
	return before + strconv.FormatUint(firstStamp+fnv64a(before, after)%stamps, 10) + after
}

// fnv64a is the hash of hash/fnv over texts, without a copy of them.
func fnv64a(texts ...string) uint64 {
	h := uint64(14695981039346656037)
	for _, t := range texts {
		for i := range len(t) {
			h = (h ^ uint64(t[i])) * 1099511628211
		}
	}
	return h
}

// stampIn returns where the stamp of a URL begins, -1 where it has none. The &
// of a value is always escaped.
func stampIn(url string) int {
	if isJSON(url) {
		return -1
	}
	const sep = StampKey + "="
	i := max(strings.Index(url, "?"+sep), strings.Index(url, "&"+sep))
	if i < 0 {
		return -1
	}
	from := i + 1 + len(sep)
	value, _, _ := strings.Cut(url[from:], "&")
	if len(value) != len(NoStamp) || strings.Trim(value, "0123456789") != "" {
		return -1 // the provider's own, in milliseconds, or none at all
	}
	return from
}
