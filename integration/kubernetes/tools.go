//go:build tools

// Package kubernetes pins the Kubernetes API server and the etcd that the
// tests of leases run against; scripts/install.sh builds them.
package kubernetes

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
)
