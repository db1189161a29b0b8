package nacos

import (
	"crypto/md5"
	"encoding/hex"
	"sync"
)

// Config identifies a configuration. The tenant of the public namespace is empty.
type Config struct{ Tenant, Group, DataID string }

// configs are the configurations of a server.
type configs struct {
	mu    sync.Mutex
	texts map[Config]string
}

// Config returns the content of a configuration, empty if there is none.
func (s *configs) Config(c Config) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.texts[c]
}

// SetConfig sets the content of a configuration, as another client does. An empty content removes
// the configuration.
func (s *configs) SetConfig(c Config, content string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.texts, c)
	if content != "" {
		s.texts[c] = content
	}
}

// request reads, removes or writes a configuration. A write fails if the configuration exists and
// its checksum differs from that of the request.
func (s *configs) request(kind string, b body) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Config{b.Tenant, b.Group, b.DataID}
	content, exists := s.texts[c]
	sum := md5.Sum([]byte(content)) //nolint:gosec // Nacos compares contents by this sum
	switch {
	case kind == "ConfigQueryRequest" && !exists:
		return answer{ResultCode: failed, ErrorCode: noConfig, Message: "config data not exist"}
	case kind == "ConfigQueryRequest":
		return answer{ResultCode: ok, Content: content}
	case kind == "ConfigRemoveRequest":
		delete(s.texts, c)
	case exists && b.CasMd5 != "" && b.CasMd5 != hex.EncodeToString(sum[:]):
		return answer{ResultCode: failed, ErrorCode: failed, Message: "Cas publish fail, server md5 may have changed."}
	default:
		s.texts[c] = b.Content
	}
	return answer{ResultCode: ok}
}
