package nacos

import (
	"crypto/md5" //nolint:gosec // what servers compare configurations by
	"encoding/hex"
)

// Config names a configuration; the tenant of the public namespace is empty.
type Config struct{ Tenant, Group, DataID string }

// Config returns the content of a configuration, empty where there is none.
func (s *Server) Config(c Config) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.configs[c]
}

// SetConfig makes a content that of a configuration, as another client does;
// an empty one removes it.
func (s *Server) SetConfig(c Config, content string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.configs, c)
	if content != "" {
		s.configs[c] = content
	}
}

// config reads or removes a configuration, or writes one that does not exist or has the
// sum that the request compares it with. The caller holds mu.
func (s *Server) config(kind string, c Config, b body) answer {
	content, there := s.configs[c]
	if kind == "ConfigQueryRequest" {
		if !there {
			return answer{ResultCode: failed, ErrorCode: noConfig, Message: "config data not exist"}
		}
		return answer{ResultCode: ok, Content: content}
	}
	if kind == "ConfigRemoveRequest" {
		delete(s.configs, c)
		return answer{ResultCode: ok}
	}
	sum := md5.Sum([]byte(content)) //nolint:gosec // as above
	if there && b.CasMd5 != "" && b.CasMd5 != hex.EncodeToString(sum[:]) {
		return answer{ResultCode: failed, ErrorCode: failed, Message: "Cas publish fail, server md5 may have changed."}
	}
	s.configs[c] = b.Content
	return answer{ResultCode: ok}
}
