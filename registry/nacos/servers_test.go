package nacos

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestParseServer(t *testing.T) {
	t.Parallel()
	for text, tt := range map[string]struct {
		port  uint16
		bases []string
		grpc  string
		fails string
	}{
		"http://n":               {bases: []string{"http://n:8848/nacos", "http://n:8848"}, grpc: "n:9848"},
		"http://n:80":            {bases: []string{"http://n:80/nacos", "http://n:80"}, grpc: "n:1080"},
		"http://n:80/":           {bases: []string{"http://n:80/nacos", "http://n:80"}, grpc: "n:1080"},
		"http://n:80//":          {bases: []string{"http://n:80/nacos", "http://n:80"}, grpc: "n:1080"},
		"http://n:80/.":          {bases: []string{"http://n:80/nacos", "http://n:80"}, grpc: "n:1080"},
		"http://n:80/nacos":      {bases: []string{"http://n:80/nacos"}, grpc: "n:1080"},
		"http://n:80/a/b/":       {bases: []string{"http://n:80/a/b"}, grpc: "n:1080"},
		"https://[2001:db8::1]":  {bases: []string{"https://[2001:db8::1]:8848/nacos", "https://[2001:db8::1]:8848"}, grpc: "[2001:db8::1]:9848"},
		"http://n:32705":         {port: 31984, bases: []string{"http://n:32705/nacos", "http://n:32705"}, grpc: "n:31984"},
		"http://n:65000/nacos":   {port: 443, bases: []string{"http://n:65000/nacos"}, grpc: "n:443"},
		"http://n:65000":         {fails: "out of range"},
		"http://n:0":             {port: 1, fails: "out of range"},
		"n:8848":                 {fails: "http://host:port"},
		"http://n:80/nacos?a=b#": {bases: []string{"http://n:80/nacos"}, grpc: "n:1080"},
	} {
		got, err := parseServer(text, tt.port)
		switch {
		case tt.fails != "":
			if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("parseServer(%q) = %v, want %q", text, err, tt.fails)
			}
		case err != nil || !slices.Equal(got.bases, tt.bases) || got.grpc != tt.grpc:
			t.Errorf("parseServer(%q, %d) = %+v, %v; want %v and %s", text, tt.port, got, err, tt.bases, tt.grpc)
		}
	}
}

// TestLogin_ContextPath: a server whose context path is / answers 404 below /nacos.
func TestLogin_ContextPath(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		path, suffix, fails string
	}{
		"the usual one":               {path: "/nacos/v1/auth/login"},
		"the usual one of version 3":  {path: "/nacos/v3/auth/user/login"},
		"the root":                    {path: "/v1/auth/login"},
		"the root, with a slash":      {path: "/v1/auth/login", suffix: "/"},
		"one of its own":              {path: "/registry/v1/auth/login", suffix: "/registry"},
		"one that servers do not say": {path: "/registry/v1/auth/login", fails: "context path"},
		"the root, next to one":       {path: "/v1/auth/login", suffix: "/registry", fails: "context path"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			mux.HandleFunc("POST "+tt.path, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"accessToken":"t","tokenTtl":18000}`))
			})
			server := httptest.NewServer(mux)
			defer server.Close()
			c, err := New(Options{
				Servers: []string{server.URL + tt.suffix}, GRPCPort: 1, Username: "nacos",
				Password: func() (string, error) { return "secret", nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			err = c.login.login(t.Context())
			if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
				t.Errorf("login() = %v, want %q", err, tt.fails)
			}
		})
	}
}
