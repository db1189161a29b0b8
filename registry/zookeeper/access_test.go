package zookeeper_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

func file(t testing.TB, path, text string) string {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestDigest(t *testing.T) {
	t.Parallel()
	password := file(t, filepath.Join(t.TempDir(), "password"), "first\n")
	user := func(o *zookeeper.Options) { o.User, o.PasswordFile = "bridge", password }
	private := func(o *zookeeper.TargetOptions) { o.Access = zookeeper.Private }
	inVirtualTime(t, "a private node is refused to other users, and not absent", func(t *testing.T, server *zkfake.Server) {
		client := dial(t, server, user)
		defer client.Close()
		write(t, target(t, client, private), creation(ours(0, 0, 0)))
		others := dial(t, server)
		defer others.Close()
		if held, err := target(t, others).Read(t.Context(), groupN(0)); !errors.Is(err, registry.ErrRefused) || held != nil {
			t.Errorf("Read of a private group by another user = %v, %v, want a refusal", held, err)
		}
		if err := target(t, others).Write(t.Context(), creation(ours(0, 1, 0))); !errors.Is(err, registry.ErrRefused) {
			t.Errorf("Write to a private group by another user = %v, want a refusal", err)
		}
		write(t, target(t, others), creation(ours(1, 0, 0))) // everything next to it is open
	})
	inVirtualTime(t, "every connection authenticates before anything else", func(t *testing.T, server *zkfake.Server) {
		client := dial(t, server, user)
		defer client.Close()
		target := target(t, client, private)
		write(t, target, creation(ours(0, 0, 0)))
		for range 3 {
			server.DropConnections()
			synctest.Wait()
			if held := read(t, target, groupN(0)); len(held) != 1 {
				t.Errorf("Read after a new connection = %v, want one entry", held)
			}
		}
		if got := server.Count(zkfake.OpAuth); got != 4 {
			t.Errorf("auth requests = %d, want one for each of 4 connections", got)
		}
	})
	inVirtualTime(t, "a changed password is used after the next refusal", func(t *testing.T, server *zkfake.Server) {
		client := dial(t, server, user)
		defer client.Close()
		target := target(t, client, private)
		write(t, target, creation(ours(0, 0, 0)))
		session := client.State().Session
		must(t, server.SetACL(parentN(0), zkfake.DigestACL(zkfake.PermAll, "bridge", "second")))
		file(t, password, "second")
		defer file(t, password, "first")
		if _, err := target.Read(t.Context(), groupN(0)); !errors.Is(err, registry.ErrRefused) {
			t.Fatalf("Read with the password before = %v, want a refusal", err)
		}
		synctest.Wait()
		if held := read(t, target, groupN(0)); len(held) != 1 || client.State().Session != session {
			t.Errorf("Read with the new password = %v in session %+v, want one entry in session %#x", held, client.State(), session)
		}
	})
}

func TestOptions_InvalidAreRefused(t *testing.T) {
	t.Parallel()
	garbage := file(t, filepath.Join(t.TempDir(), "ca.pem"), "no certificate")
	for name, tt := range map[string]struct {
		opts zookeeper.Options
		want string
	}{
		"no server":            {zookeeper.Options{}, "set servers to at least one host:port"},
		"a path that is none":  {zookeeper.Options{Servers: []string{"a:1/chroot//x"}}, `"a:1/chroot//x": the chroot is not a path`},
		"a path in the middle": {zookeeper.Options{Servers: []string{"a:1/chroot", "b:1"}}, `"a:1/chroot": must be host:port`},
		"no password file":     {zookeeper.Options{Servers: []string{"a"}, User: "u", PasswordFile: garbage + ".none"}, "passwordFile: open"},
		"no CA":                {zookeeper.Options{Servers: []string{"a"}, TLS: tlsfile.Files{CA: garbage + ".none"}.Config}, "CA file: open"},
		"a CA that is none":    {zookeeper.Options{Servers: []string{"a"}, TLS: tlsfile.Files{CA: garbage}.Config}, "has no PEM certificate"},
		"a key that is none":   {zookeeper.Options{Servers: []string{"a"}, TLS: tlsfile.Files{Cert: garbage, Key: garbage}.Config}, "certificate and key files"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := zookeeper.Dial(tt.opts)
			if client != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Dial = %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestTargetOptions_InvalidAreRefused(t *testing.T) {
	t.Parallel()
	client := dial(t, serve(t))
	good := zookeeper.TargetOptions{Owner: owner, Layouts: []zookeeper.Layout{layout{}}}
	for name, tt := range map[string]struct {
		tune func(*zookeeper.TargetOptions)
		want string
	}{
		"no owner":               {func(o *zookeeper.TargetOptions) { o.Owner = "" }, "an owner"},
		"an owner of dots":       {func(o *zookeeper.TargetOptions) { o.Owner = ".." }, "owner: refused"},
		"no layout":              {func(o *zookeeper.TargetOptions) { o.Layouts = nil }, "a layout"},
		"an unknown lifetime":    {func(o *zookeeper.TargetOptions) { o.Lifetime = "long" }, `lifetime must be persistent or session (got "long")`},
		"an unknown access":      {func(o *zookeeper.TargetOptions) { o.Access = "all" }, `acl must be open, read-only or private (got "all")`},
		"private without a user": {func(o *zookeeper.TargetOptions) { o.Access = zookeeper.Private }, "requires user"},
		"a layout without star":  {func(o *zookeeper.TargetOptions) { o.Layouts = []zookeeper.Layout{fixedLayout{}} }, `layout "/a/b"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := good
			tt.tune(&opts)
			if _, err := zookeeper.NewTarget(client, opts); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("NewTarget = %v, want an error with %q", err, tt.want)
			}
		})
	}
}

type fixedLayout struct{ layout }

func (fixedLayout) Parents() string { return "/a/b" }

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	a := authority{}
	a.key, a.cert = a.issue(t, "authority", true)
	return a
}

func (a authority) issue(t testing.TB, name string, ca bool) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: ca, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	parent, signer := template, key
	if a.key != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return key, cert
}

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func (a authority) files(t testing.TB, dir, name string) (certFile, keyFile string) {
	t.Helper()
	key, cert := a.issue(t, name, false)
	der, err := x509.MarshalECPrivateKey(key)
	must(t, err)
	return file(t, filepath.Join(dir, name+".pem"), pemOf("CERTIFICATE", cert.Raw)),
		file(t, filepath.Join(dir, name+".key"), pemOf("EC PRIVATE KEY", der))
}

func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	right, wrong := newAuthority(t), newAuthority(t)
	certFile, keyFile := right.files(t, dir, "zk.example")
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(right.cert)
	server := zkfake.New(zkfake.Options{TLS: &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}})
	address, err := server.Listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { must(t, server.Close()) })
	caFile := file(t, filepath.Join(dir, "ca.pem"), pemOf("CERTIFICATE", wrong.cert.Raw))
	clientCert, clientKey := wrong.files(t, dir, "bridge")
	client, err := zookeeper.Dial(zookeeper.Options{Servers: []string{address}, Timeout: 20 * time.Second, TLS: tlsfile.Files{
		CA: caFile, ServerName: "zk.example", Cert: clientCert, Key: clientKey,
	}.Config})
	must(t, err)
	t.Cleanup(client.Close)
	target := target(t, client)

	for client.State().LastError == "" {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := target.Groups(ctx); err == nil {
			t.Fatal("Groups over a server of another authority: got no error, want one")
		}
		cancel()
	}
	if last := client.State().LastError; !strings.Contains(last, "TLS with "+address) {
		t.Errorf("State().LastError = %q, want one of TLS with %s", last, address)
	}
	// The files are read again for the next connection.
	file(t, caFile, pemOf("CERTIFICATE", right.cert.Raw))
	right.files(t, dir, "bridge")
	write(t, target, creation(ours(0, 0, 0)))
	if report, err := target.Check(t.Context()); err != nil || report.Version != zkfake.Version || report.Write != nil {
		t.Errorf("Check = %+v, %v, want version %s and no error", report, err, zkfake.Version)
	}
	if host, _, _ := net.SplitHostPort(client.State().Server); host != "127.0.0.1" {
		t.Errorf("State().Server = %q, want one on 127.0.0.1", client.State().Server)
	}
}

// TestPassword_TrimsSpaces shows that spaces around a password
// are no part of it.
func TestPassword_TrimsSpaces(t *testing.T) {
	t.Parallel()
	s := serve(t)
	as := func(text string) *zookeeper.Target {
		password := file(t, filepath.Join(t.TempDir(), "password"), text)
		client := dial(t, s, func(o *zookeeper.Options) { o.User, o.PasswordFile = "bridge", password })
		return target(t, client, func(o *zookeeper.TargetOptions) { o.Access = zookeeper.Private })
	}
	write(t, as("secret\n"), creation(ours(0, 0, 0)))
	if held := read(t, as(" \tsecret \r\n\n"), groupN(0)); len(held) != 1 {
		t.Errorf("Read with a password between spaces = %v, want one entry", held)
	}
	empty := file(t, filepath.Join(t.TempDir(), "password"), " \n")
	if _, err := zookeeper.Dial(zookeeper.Options{Servers: []string{"a"}, User: "bridge", PasswordFile: empty}); err == nil {
		t.Error("Dial with an empty password: got no error, want one")
	}
}

// TestRecords_Denied shows that the other records of a kind are
// returned, with an error that names the denied one.
func TestRecords_Denied(t *testing.T) {
	t.Parallel()
	server := serve(t)
	target := target(t, dial(t, server))
	texts := map[string]string{"a": "text of a", "b": "text of b", "c": "text of c", "d": strings.Repeat("x", zookeeper.DataLimit), "none": ""}
	var refused registry.Refused
	if err := target.Record(t.Context(), "decisions", texts); !errors.As(err, &refused) || !refused.Has("d") || len(refused) != 1 {
		t.Errorf("Record with a text as large as the limit = %v, want only that one refused", err)
	}
	for _, again := range []map[string]string{{"a": "next", "b": "next", "d": "next"}, {"a": "text of a", "b": "text of b"}, {"a": "text of a", "d": ""}} {
		must(t, target.Record(t.Context(), "decisions", again))
	}
	must(t, server.SetACL("/xds-bridge/shop/decisions/b", zkfake.WorldACL(zkfake.PermWrite)))
	all, err := target.Records(t.Context(), "decisions")
	if !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), "decisions/b") || len(all) != 2 || all["a"] != "text of a" || all["c"] != "text of c" {
		t.Errorf("Records with one that may not be read = %v, %v, want the others and a refusal that names it", all, err)
	}
	must(t, server.SetACL("/xds-bridge/shop/decisions", zkfake.WorldACL(zkfake.PermWrite)))
	if all, err := target.Records(t.Context(), "decisions"); !errors.Is(err, registry.ErrRefused) || all != nil {
		t.Errorf("Records of a parent that may not be listed = %v, %v, want none and a refusal", all, err)
	}
}
