// Package lease says which of several replicas may write what. The work is
// divided into shards; of each shard one replica decides, another keeps warm
// to take over. All of that stands in one record, in a registry or cluster
// that the user already runs, and is changed by compare-and-swap alone.
//
// A replica may decide for two thirds of the ttl after it last renewed its
// entry in the record. Another one may take its shards once it saw that entry
// unchanged for the whole ttl. Both measure on their own monotonic clock, so
// no two clocks have to agree on more than how long a second is.
//
// Goroutines: none but those that call Run and Leave.
package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// A Store keeps the record that all replicas share. Its calls may take as long
// as their context lets them.
type Store interface {
	// Load returns the record and the version that Save asks for; no record
	// and no error where there is none yet.
	Load(ctx context.Context) (record []byte, version string, err error)

	// Save replaces the record if it still has the version, and makes it
	// where the version is empty. It returns registry.ErrConflict where
	// another was faster.
	Save(ctx context.Context, record []byte, version string) error

	// Changed is ready after the record may have changed; nil where nobody
	// tells, and the record has to be looked at.
	Changed() <-chan struct{}
}

// Options tune a Member.
type Options struct {
	Store    Store
	Identity string        // of this process and no other
	Shards   int           // the same for all replicas
	TTL      time.Duration // how long a replica that is silent keeps its shards
	Poll     time.Duration // how often the record is looked at; 0: a fifth of the ttl
	Log      *slog.Logger  // nil: none
}

// The least and the largest of what can be asked for.
const (
	MinTTL    = time.Second
	MaxShards = 256
)

func (o Options) validate() error {
	switch {
	case o.Store == nil || o.Identity == "":
		return errors.New("a member needs a store and an identity")
	case o.Shards < 1 || o.Shards > MaxShards:
		return fmt.Errorf("shards: %d is not between 1 and %d", o.Shards, MaxShards)
	case o.TTL < MinTTL:
		return fmt.Errorf("ttl: %s is less than %s", o.TTL, MinTTL)
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.Poll <= 0 || o.Poll > o.beat() {
		o.Poll = o.beat()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// beat is how often a member renews its entry.
func (o Options) beat() time.Duration { return o.TTL / 5 }

// valid is how long a member may decide after it renewed its entry. What is
// left of the ttl is for calls under way and clocks that differ.
func (o Options) valid() time.Duration { return o.TTL * 2 / 3 }

// patience is how long a member may take to get ready for a part that it has,
// before others are preferred that do.
func (o Options) patience() time.Duration { return o.TTL * 8 }
