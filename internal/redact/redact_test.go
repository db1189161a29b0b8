package redact_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/redact"
)

func TestText_I1(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"dubbo://10.0.0.1:20880/api.Greeter?token=s3cret&version=1.0.0": "dubbo://10.0.0.1:20880/api.Greeter?token=<redacted>&version=1.0.0",
		"?a=1&PassWord=s3cret":        "?a=1&PassWord=<redacted>",
		"?ak=s3cret&sk=s3cret&ask=me": "?ak=<redacted>&sk=<redacted>&ask=me",
		"create /dubbo/api.Greeter/providers/tri%3A%2F%2F10.0.0.1%3A1%2Fapi.Greeter%3Faccess.token%3Ds3%2Fcret%26side%3Dprovider: no": "create /dubbo/api.Greeter/providers/tri%3A%2F%2F10.0.0.1%3A1%2Fapi.Greeter%3Faccess.token%3D<redacted>%26side%3Dprovider: no",
		"%3Fak%3ds3cret":                                   "%3Fak%3d<redacted>",
		"tri://ann:s3cret@10.0.0.1:1/x":                    "tri://ann:<redacted>@10.0.0.1:1/x",
		"tri%3A%2F%2Fann%3As3cret%40h%3A1":                 "tri%3A%2F%2Fann%3A<redacted>%40h%3A1",
		`{"metadata":{"db.password":"s3\"cret","k":"v"}}`:  `{"metadata":{"db.password":"<redacted>","k":"v"}}`,
		`{"p":"{\"token\" : \"s3\\\"cret\",\"k\":\"v\"}"}`: `{"p":"{\"token\" : \"<redacted>\",\"k\":\"v\"}"}`,
		`metadata "{\"secret\":\"s3cret`:                   `metadata "{\"secret\":\"<redacted>`,
		// What only looks like it.
		"token-service.shop.svc.cluster.local:8080":    "token-service.shop.svc.cluster.local:8080",
		"providers:com.example.TokenService:1.0.0:":    "providers:com.example.TokenService:1.0.0:",
		"tri://10.0.0.1:20880/api.TokenService?side=p": "tri://10.0.0.1:20880/api.TokenService?side=p",
		"tri://token-service:1/x?interface=a.Secret@b": "tri://token-service:1/x?interface=a.Secret@b",
		"passwordFile: open /x: no such file":          "passwordFile: open /x: no such file",
		`{"port":80,"secret":7}`:                       `{"port":80,"secret":7}`,
		"token=":                                       "token=",
	} {
		if got := redact.Text(text); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

func TestMap_I1(t *testing.T) {
	t.Parallel()
	m := map[string]string{"token": "s3cret", "zone": "a"}
	if got := redact.Map(m); got["token"] != redact.Hidden || got["zone"] != "a" || m["token"] != "s3cret" {
		t.Errorf("%v of %v", got, m)
	}
	if m := map[string]string{"zone": "a"}; !maps.Equal(redact.Map(m), m) {
		t.Error("changed")
	}
}

func TestLog_I2(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	log := slog.New(redact.Handler(slog.NewTextHandler(&b, nil))).With("at", "?token=s3cret").WithGroup("g")
	log.Warn("of ?token=s3cret", "err", errors.New("get /x?password=s3cret: no"), slog.Group("in", "entries", []string{"?sk=s3cret"}), "n", 7)
	got := b.String()
	if strings.Contains(got, "s3cret") || strings.Count(got, redact.Hidden) != 4 || !strings.Contains(got, "g.n=7") {
		t.Error(got)
	}
}

// FuzzJSON: what comes of a document is one, and holds no secret that was in
// one of its texts, however often that was quoted.
func FuzzJSON(f *testing.F) {
	f.Add("a", "b c", 0)
	f.Add(`"`, `\`, 1)
	f.Add("<>&", "?x=1&", 2)
	f.Add("%", "%26", 3)
	f.Fuzz(func(t *testing.T, before, after string, form int) {
		const secret = "S3CRET0"
		if strings.Contains(before+after, secret) {
			return
		}
		text := before
		switch form % 4 {
		case 0:
			text += "&token=" + secret + "&" + after
		case 1:
			text += `{"token":"` + secret + `"}` + after
		case 2:
			text += strconv.Quote(`{"token":"`+secret+`"}`) + after
		default:
			text += "%26token%3D" + secret + "%26" + after
		}
		document, err := json.Marshal(map[string]string{"x": text, "y": after})
		if err != nil {
			t.Fatal(err)
		}
		out := redact.JSON(document)
		if !json.Valid(out) || strings.Contains(string(out), secret) {
			t.Errorf("%s became %s", document, out)
		}
		if again := redact.JSON(out); string(again) != string(out) {
			t.Errorf("%s, and again %s", out, again)
		}
	})
}
