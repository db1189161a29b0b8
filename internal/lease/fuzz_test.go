package lease

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// FuzzRecord shows that no record brings a replica down, that whatever stands in
// one a replica makes none but a member the leader, and that terms never fall.
func FuzzRecord(f *testing.F) {
	f.Add(`{"format":1,"leader":"gone","term":3,"members":{"a":{"beat":17,"ttl_ms":15000,"ready":3},"b":{"beat":3}}}`)
	f.Add(`{"format":1,"leader":"a","members":{"a":{"leaving":true},"":{}}}`)
	f.Add(`{"format":1,"leader":"","members":null}`)
	f.Add(`{"format":1,"leader":"gone","term":9223372036854775807,"members":{"a":{}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		s := newScene(t, rules{})
		read, err := parse([]byte(text), time.Unix(1e9, 0))
		if err != nil || len(read.Members) > 100 {
			return
		}
		_ = s.put([]byte(text))
		for range 2 * int(MaxTTL/sceneStep) { // until all that it names are dead
			s.members[0].clock += sceneStep
			s.members[0].takesTurn()
		}
		if r := s.record; r.Term < read.Term || !s.members[0].leads() || len(r.Members) != 1 {
			t.Errorf("term %d after %d, %+v", r.Term, read.Term, r)
		}
	})
}

// FuzzLease shows that no answer of an API server is more than an error or a
// record.
func FuzzLease(f *testing.F) {
	f.Add(200, `{"metadata":{"resourceVersion":"7","annotations":{"xds-bridge/replicas":"{}"}}}`)
	f.Add(200, `<html>`)
	f.Add(404, `{}`)
	f.Add(403, `{"message":"\u001b[2J"}`)
	f.Add(302, ``)
	token := filepath.Join(f.TempDir(), "token")
	if err := os.WriteFile(token, []byte("t"), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, status int, body string) {
		k, err := NewKubernetes(KubernetesOptions{Server: "https://api", Namespace: "n", Name: "l", TokenFile: token, TTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		k.client = &http.Client{
			Transport: answering(func() *http.Response {
				return &http.Response{StatusCode: status, Header: http.Header{"Location": {"https://elsewhere"}}, Body: io.NopCloser(strings.NewReader(body))}
			}),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		if _, _, err := k.Load(t.Context()); err == nil && status >= 300 && status != http.StatusNotFound {
			t.Errorf("status %d is taken for a record", status)
		}
	})
}

// An answering transport answers whatever is asked.
type answering func() *http.Response

var errElsewhere = errors.New("asked elsewhere")

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != "api" {
		return nil, errElsewhere
	}
	if err := r.Context().Err(); err != nil {
		return nil, context.Cause(r.Context())
	}
	return a(), nil
}
