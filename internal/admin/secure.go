package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"net/http"
	"strings"
)

// Secure is what a status API needs that others than this machine may reach.
// Both are asked for anew each time, so that files may be rotated.
type Secure struct {
	Certificate func() (*tls.Certificate, error)
	Token       func() (string, error) // that every request has to bear
}

// config returns how the listener speaks TLS.
func (s *Secure) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.Certificate() },
	}
}

// bearing answers only requests that bear the token, which no page in a
// browser knows, whatever host it thinks it speaks to. It says nothing about
// what is wrong with a token.
func (s *Secure) bearing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := s.Token()
		given, bears := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		want, have := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(given))
		if err != nil || token == "" || !bears || subtle.ConstantTimeCompare(want[:], have[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			problem(w, http.StatusUnauthorized, "send the token of admin.tokenFile as Authorization: Bearer")
			return
		}
		next.ServeHTTP(w, r)
	})
}
