package nacos

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"
)

type cached struct {
	at    time.Time
	hosts []model.Instance
}

// Set replaces the publication of a named client that has no connection; without instances it
// withdraws the publication.
func (s *Server) Set(sv Service, client string, instances ...model.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publish(sv.public(), "other-"+client, instances)
}

// Instances returns the current instances of a service, without the lag, ordered by address and
// connection.
func (s *Server) Instances(sv Service) []model.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hosts(sv.public())
}

func (s *Server) hosts(sv Service) []model.Instance {
	out := []model.Instance{}
	for _, instances := range s.services[sv] {
		out = append(out, instances...)
	}
	if edit := s.edits[sv]; edit != nil {
		for i := range out {
			out[i].Metadata = maps.Clone(out[i].Metadata)
			edit(&out[i])
		}
	}
	slices.SortFunc(out, func(a, b model.Instance) int {
		address := func(i model.Instance) string { return i.Ip + ":" + strconv.FormatUint(i.Port, 10) }
		return cmp.Or(strings.Compare(address(a), address(b)), strings.Compare(fmt.Sprint(a.Metadata), fmt.Sprint(b.Metadata)))
	})
	return slices.CompactFunc(out, func(a, b model.Instance) bool { return reflect.DeepEqual(a, b) })
}

// publish replaces the publication of a connection in a service. The caller holds mu.
func (s *Server) publish(sv Service, conn string, instances []model.Instance) {
	if _, kept := s.shadow[sv]; !kept && s.Lag > 0 && s.services[sv] != nil {
		s.shadow[sv] = cached{at: time.Now(), hosts: s.hosts(sv)}
	}
	if s.services[sv] == nil {
		s.services[sv] = make(map[string][]model.Instance)
	}
	if len(instances) == 0 {
		delete(s.services[sv], conn)
	} else {
		stored := slices.Clone(instances)
		for i := range stored {
			stored[i].ServiceName = sv.Group + "@@" + sv.Name
		}
		s.services[sv][conn] = stored
	}
	s.notify(sv)
}

// cachedHosts returns the instances as of Lag ago, as reads from a real server do.
func (s *Server) cachedHosts(sv Service) []model.Instance {
	old, kept := s.shadow[sv]
	if kept && time.Since(old.at) < s.Lag {
		return old.hosts
	}
	delete(s.shadow, sv)
	return s.hosts(sv)
}

// info returns a service as answers and pushes report it. If the share of healthy hosts does not
// exceed the service's protection threshold, all hosts are reported as healthy.
func (s *Server) info(sv Service, hosts []model.Instance) *model.Service {
	info := &model.Service{
		Name: sv.Name, GroupName: sv.Group, Hosts: hosts, Valid: true,
		LastRefTime: uint64(max(0, time.Now().Add(s.skew).UnixMilli())),
	}
	threshold, ok := s.thresholds[sv]
	healthy := 0
	for _, h := range hosts {
		if h.Healthy {
			healthy++
		}
	}
	if !ok || len(hosts) == 0 || float64(healthy)/float64(len(hosts)) > threshold {
		return info
	}
	info.ReachProtectionThreshold, info.Hosts = true, slices.Clone(hosts)
	for i := range info.Hosts {
		info.Hosts[i].Healthy = true
	}
	return info
}

// Remove removes services including their names, as a server does when it cleans up. Subscribers
// receive an empty service.
func (s *Server) Remove(services ...Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sv := range services {
		sv = sv.public()
		delete(s.services, sv)
		delete(s.shadow, sv)
		s.notify(sv)
	}
}

// Edit changes the instances of a service as an operator does in the console, and notifies its
// subscribers. As on a real server, the change also applies to instances that are published later;
// nil ends it.
func (s *Server) Edit(sv Service, change func(*model.Instance)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sv = sv.public()
	s.edits[sv] = change
	s.notify(sv)
}

// Protect sets the protection threshold of a service, and notifies its subscribers.
func (s *Server) Protect(sv Service, threshold float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sv = sv.public()
	s.thresholds[sv] = threshold
	s.notify(sv)
}

// selected returns the enabled instances, or only those that are also healthy.
func selected(hosts []model.Instance, healthyOnly bool) []model.Instance {
	return slices.DeleteFunc(slices.Clone(hosts), func(i model.Instance) bool { return !i.Enable || healthyOnly && !i.Healthy })
}
