package redact_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/redact"
)

func TestText(t *testing.T) {
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
		"Bearer s3cret":                                    "Bearer <redacted>",
		"authorization: Basic s3cret and more":             "authorization: <redacted> and more",
		"password: s3cret and more":                        "password: <redacted> and more",
		"authorization: bearer":                            "authorization: <redacted>",
		"APIKEY=s3cret AUTHORIZATION=s3cret":               "APIKEY=<redacted> AUTHORIZATION=<redacted>",
		"token0=s3cret token9=s3cret":                      "token0=<redacted> token9=<redacted>",
		"redis://:s3/cret@h:1/0":                           "redis://:<redacted>@h:1/0",
		`{"token":["s3cret",{"a":"s3]"}],"k":1}`:           `{"token":<redacted>,"k":1}`,
		`{"token":["s3cret"`:                               `{"token":<redacted>`,
		// Texts that only resemble secrets.
		"token-service.shop.svc.cluster.local:8080":           "token-service.shop.svc.cluster.local:8080",
		"providers:com.example.TokenService:1.0.0:":           "providers:com.example.TokenService:1.0.0:",
		"tri://10.0.0.1:20880/api.TokenService?side=p":        "tri://10.0.0.1:20880/api.TokenService?side=p",
		"tri://token-service:1/x?interface=a.Secret@b":        "tri://token-service:1/x?interface=a.Secret@b",
		"passwordFile: open /x: no such file":                 "passwordFile: open /x: no such file",
		"open /run/nacos-password: no such file or directory": "open /run/nacos-password: no such file or directory",
		`{"e":"open \"/run/istio-token: permission denied"}`:  `{"e":"open \"/run/istio-token: permission denied"}`,
		"secret file: read ./password: is a directory":        "secret file: read ./password: is a directory",
		"password: permission":                                "password: <redacted>",
		"password: no such thing":                             "password: <redacted> such thing",
		`{"port":80,"secret":7}`:                              `{"port":80,"secret":<redacted>}`,
		"× token: has no audience":                            "× token: has no audience",
		"http://nacos:8848/@scope/x":                          "http://nacos:8848/@scope/x",
		"token=":                                              "token=",
	} {
		if got := redact.Text(text); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

// TestText_Encodings escapes every form of a secret by every encoding up to three times,
// and searches the result for the secret.
func TestText_Encodings(t *testing.T) {
	t.Parallel()
	const secret = "S3CRET"
	var forms []string
	for _, name := range []string{"password", "db.pwd", "pass", "passphrase", "authorization", "jwt", "signature", "Access-Token", "clientSecret", "api_key", "sk"} {
		for _, value := range []string{secret, "ab," + secret, "ab)" + secret, "ab;" + secret, "ab'" + secret, "ab%26" + secret, "ab/" + secret, "12345" + secret} {
			forms = append(forms, "?a=1&"+name+"="+value+"&b=2", `{"`+name+`":"`+value+`"}`, `{"x":1,"`+name+`" : "`+value+`","y":2}`)
		}
		forms = append(forms,
			"?"+name+"=Basic%20"+secret, `{"`+name+`":"Bearer `+secret+`"}`, name+": "+secret, name+": Bearer "+secret, `{"`+name+`": 12345`+secret+`}`,
			`{"`+name+`":["`+secret+`","`+secret+`"]}`, `{"`+name+`":{"value":"`+secret+`"}}`, `{"`+name+`":[["a]"],{"b":"`+secret+`"}]}`)
	}
	forms = append(forms, "mysql://ann:ab/"+secret+"@h:1/x", "mysql://ann:ab@"+secret+"@h:1/x", "https://"+secret+"@h/x", "curl -H 'Bearer "+secret+"'")
	unicode := func(s string) string {
		return strings.NewReplacer("w", `\u0077`, "k", `\u006B`, "p", `\u0070`).Replace(s)
	}
	quote := func(s string) string { q := strconv.Quote(s); return q[1 : len(q)-1] }
	letters := func(s string) string { return strings.NewReplacer("w", "%77", "o", "%6F").Replace(url.QueryEscape(s)) }
	escapes := map[string]func(string) string{
		"as it is": func(s string) string { return s }, "a path": url.PathEscape, "a quote": quote, "unicode": unicode, "letters": letters,
	}
	for _, form := range forms {
		for a, first := range escapes {
			for b, second := range escapes {
				for c, third := range escapes {
					if c != "as it is" && !strings.Contains(form, "password") && !strings.Contains(form, "@") {
						continue // two forms are enough for the other names
					}
					text := third(second(first(form)))
					got := redact.Text(text)
					if strings.Contains(got, secret) {
						t.Errorf("%s, %s, %s of %s: %s shows %s", a, b, c, form, text, got)
					}
					if again := redact.Text(got); again != got {
						t.Errorf("%s, and again %s", got, again)
					}
				}
			}
		}
	}
}

// TestKey shows that a name with one of the secret words anywhere in it is secret, and that
// a name that only resembles one is not.
func TestKey(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"password", "DB_PASSWORD", "passwd", "passphrase", "accessToken", "clientSecret", "aws.credentials", "Authorization", "x-signature", "private_key",
		"accessKeyId", "access-key", "access_key", "apiKey", "x-api-key", "api_key", "ak", "SK", "db.pass", "pwd", "user-jwt",
	} {
		if !redact.Key(name) {
			t.Errorf("%s holds a secret", name)
		}
	}
	for _, name := range []string{"", "side", "zone", "passive", "compass", "task", "desk", "key", "publickey", "keystore", "bypass.cache", "author"} {
		if redact.Key(name) {
			t.Errorf("%s holds none", name)
		}
	}
}

func TestMap(t *testing.T) {
	t.Parallel()
	m := map[string]string{"token": "s3cret", "zone": "a"}
	if got := redact.Map(m); got["token"] != redact.Hidden || got["zone"] != "a" || m["token"] != "s3cret" {
		t.Errorf("%v of %v", got, m)
	}
	if m := map[string]string{"zone": "a"}; !maps.Equal(redact.Map(m), m) {
		t.Error("changed")
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	log := slog.New(redact.Handler(slog.NewTextHandler(&b, nil))).With("at", "?token=s3cret").WithGroup("g")
	log.Warn("of ?token=s3cret", "err", errors.New("get /x?password=s3cret: no"), slog.Group("in", "entries", []string{"?sk=s3cret"}), "n", 7)
	got := b.String()
	if strings.Contains(got, "s3cret") || strings.Count(got, redact.Hidden) != 4 || !strings.Contains(got, "g.n=7") {
		t.Error(got)
	}
}

// TestJSON_Truncated shows that an invalid document is returned without a panic.
func TestJSON_Truncated(t *testing.T) {
	t.Parallel()
	const document = `{"a":"?token=s3cret","b":"?token=s3\\"`
	for i := range document {
		cut := string(redact.JSON([]byte(document[:i])))
		if i > strings.Index(document, `","b"`) && strings.Contains(cut, "s3cret") || !strings.HasPrefix(cut, document[:min(i, 5)]) {
			t.Errorf("%s was cut to %s", document[:i], cut)
		}
	}
}

// FuzzJSON shows that a redacted document is still a document, and has no secret of its
// strings, regardless of how often they were quoted.
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
			t.Errorf("%s was redacted to %s", document, out)
		}
		if again := redact.JSON(out); string(again) != string(out) {
			t.Errorf("%s, and again %s", out, again)
		}
	})
}
