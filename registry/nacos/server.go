package nacos

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"path"
	"strconv"
)

// A server is one address of the configuration.
type server struct {
	bases []string // URLs of the possible context paths, such as http://host:port/nacos
	grpc  string   // host:port
}

// addresses returns the URLs of paths below each of the bases.
func (s server) addresses(paths []string) (all []string) {
	for _, base := range s.bases {
		for _, p := range paths {
			all = append(all, base+p)
		}
	}
	return all
}

func parseServers(o Options) ([]server, error) {
	if len(o.Servers) == 0 {
		return nil, errors.New("servers: must not be empty")
	}
	out := make([]server, 0, len(o.Servers))
	for _, s := range o.Servers {
		parsed, err := parseServer(s, o.GRPCPort)
		if err != nil {
			return nil, fmt.Errorf("servers: %q: %w", s, err)
		}
		out = append(out, parsed)
	}
	return out, nil
}

// grpcOffset is added to the HTTP port of a server for its gRPC port.
const grpcOffset = 1000

func parseServer(s string, grpcPort uint16) (server, error) {
	u, err := url.Parse(s)
	if err != nil {
		return server{}, fmt.Errorf("not a URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return server{}, errors.New("must be http://host:port or https://host:port")
	}
	port := cmp.Or(u.Port(), "8848")
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || grpcPort == 0 && n+grpcOffset > math.MaxUint16 {
		return server{}, fmt.Errorf("port %s is out of range", port)
	}
	if grpcPort == 0 {
		grpcPort = uint16(n + grpcOffset)
	}
	root := u.Scheme + "://" + net.JoinHostPort(u.Hostname(), port)
	out := server{
		bases: []string{root + "/nacos", root},
		grpc:  net.JoinHostPort(u.Hostname(), strconv.Itoa(int(grpcPort))),
	}
	if at := path.Clean("/" + u.Path); at != "/" {
		out.bases = []string{root + at}
	}
	return out, nil
}
