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

// FuzzRecord shows that no record brings a replica down, and that whatever
// stands in one, a step gives a shard to members alone.
func FuzzRecord(f *testing.F) {
	f.Add(`{"format":1,"shards":[{"decider":"a","warm":"b","term":3},{"decider":"gone","term":1}],"members":{"a":{"beat":17,"ready":{"0":3}},"b":{"beat":3}}}`)
	f.Add(`{"format":1,"shards":[{"warm":"a"}],"members":{"a":{"leaving":true},"":{}}}`)
	f.Add(`{"format":1,"shards":null,"members":null}`)
	f.Add(`{"format":1,"shards":[{}],"members":{"a":{"ready":{"-1":1,"99":1}}}}`)
	f.Add(`{"format":1,"shards":[{"decider":"gone","term":9223372036854775807}],"members":{"a":{}}}`)
	f.Fuzz(func(t *testing.T, record string) {
		read, err := parse([]byte(record), time.Unix(1e9, 0))
		if err != nil || len(read.Shards) == 0 || len(read.Shards) > MaxShards || len(read.Members) > MaxShards {
			return
		}
		next := read.clone()
		next.Members["self"] = member{Beat: 1}
		for range 4 {
			next.step("self")
		}
		for i, s := range next.Shards {
			if s.Term < read.Shards[i].Term {
				t.Errorf("term %d of shard %d comes after %d", s.Term, i, read.Shards[i].Term)
			}
			if _, there := next.Members[s.Decider]; !there && s.Decider != "" {
				t.Errorf("shard %d is decided by %q, who is no member", i, s.Decider)
			}
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
